"""``lading dead-letters redrive`` killed at each step and run again: nothing lost, and nothing twice where promised."""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lading import Consumer, Producer, testing
from lading.pipeline.quarantine import AT_LEAST_ONCE
from lading.transports.open import is_queue, open_transport
from tests import forked_command
from tests.interop import kafka_broker, shared_kafka

LETTERS = 40
PARTITIONS = 2
SAMPLE = 2
_numbers = count()


class RedrivenTopic:
    """Dead letters, and the topic that they came from at a server."""

    def __init__(self, source: str, server: str, directory: Path) -> None:
        number = next(_numbers)
        prefix = "s." if server.startswith("iggy") else ""
        self.origin = f"{prefix}origin{shared_kafka.PROCESS}{number}"
        self.letters = f"letters{shared_kafka.PROCESS}{number}"
        self._source, self._server = source, server
        self._directory = directory / str(number)
        self._directory.mkdir()
        for url, topic, partitions in ((source, self.letters, 1), (server, self.origin, PARTITIONS)):
            transport = open_transport(url)
            transport.create_topic(topic, 1 if is_queue(url) else partitions)
            transport.close()
        with Producer(source) as producer:
            for at in range(LETTERS):
                names = {"topic": self.origin, "partition": at % PARTITIONS, "offset": at}
                told: list[tuple[str, Any]] = [
                    (f"__connect.errors.{name}", str(value).encode()) for name, value in names.items()
                ]
                producer.send(self.letters, b"%d" % at, partition=0, headers=told)

    def redrive(self, last: int = 0) -> tuple[int, dict[str, Any]]:
        """Run the command; return how many steps it made, and its report: empty if step ``last`` killed it.

        It makes more steps at one time than at another, as responses arrive in more pieces, and as a coordinator that
        is busy is asked again: it may end before ``last``.
        """
        file = self._directory / "steps"
        command = [sys.executable, "-m", "tests.pipeline.killed_redrive", str(file), str(last), "dead-letters"]
        command += ["redrive", self._source, self.letters, "--server", self._server, "--output", "json"]
        command += ["--state", str(self._directory / "state")]
        done = forked_command.run(command, timeout=120)
        if last and done.returncode == -signal.SIGKILL:
            return last, {}
        assert done.returncode == 0, done.stderr
        return int(file.read_text()), json.loads(done.stdout)

    def count_found(self) -> Counter[bytes]:
        """Return how often each message is in the topic."""
        group: dict[str, Any] = {"group": "reader", "timeout_s": 2} if is_queue(self._server) else {"timeout_s": 0}
        with Consumer(self._server, self.origin, start="earliest", **group) as consumer:
            return Counter(message.payload or b"" for message in consumer)


@pytest.fixture(params=["apache", "kafka", "lading", "iggy", "nsq"])
def servers(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Where dead letters are, and where they are sent to."""
    if request.param == "apache":
        kafka: kafka_broker.RunningKafka = request.getfixturevalue("kafka")
        return kafka.url, kafka.url
    ours: testing.BrokerProcess = request.getfixturevalue("served")
    urls = {"kafka": "kafka", "iggy": "iggy_tcp", "nsq": "nsqd_tcp"}
    if request.param == "lading":
        return ours.url, ours.url
    target = f"{request.param}://{ours.endpoints[urls[request.param]]}"
    return (target if request.param == "kafka" else ours.url), target


@pytest.mark.turns(3)
@pytest.mark.timeout(1800)
def test_kill_at_each_step(servers: tuple[str, str], tmp_path: Path, full: bool) -> None:
    source, server = servers
    steps, report = RedrivenTopic(source, server, tmp_path).redrive()
    once = not server.startswith(("iggy", "nsq"))
    assert (report["sent"], report["delivery"]) == (LETTERS, "once" if once else AT_LEAST_ONCE)
    random, has_ended = Random(17), False
    kills = lost = doubled = 0
    # in full: at the first step, the second, … until one run ends, each of whose steps has killed another then
    while not has_ended if full else kills < SAMPLE:
        topic = RedrivenTopic(source, server, tmp_path)
        point = kills + 1 if full else random.randint(1, steps)
        done, report = topic.redrive(point)
        kills += not report
        if has_ended := bool(report):
            assert done < point, "a step that was reached killed nothing"
            steps = done
        _, report = topic.redrive()
        assert report["sent"] + report["already"] == LETTERS, (done, report)
        found = topic.count_found()
        assert found.keys() <= {b"%d" % at for at in range(LETTERS)}
        lost += LETTERS - len(found)
        doubled += sum(found.values()) - len(found)
    print(f"redrive to {server.partition(':')[0]}: steps {steps}, kills {kills}, lost {lost}, doubled {doubled}")
    assert lost == 0
    assert doubled == 0 or not once
