"""The broker is killed while clients publish and consume over its NSQ face: what was acknowledged is delivered."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from lading import Consumer, Producer, testing
from lading.model.errors import LadingError


@pytest.mark.timeout(1800)
@pytest.mark.turns(3, part=1)
def test_kill_9_under_nsq_clients_loses_nothing(
    tmp_path: Path, full: bool, record_figures: Callable[..., None]
) -> None:
    random = Random(4)
    rounds = 40 if full else 2
    acknowledged: set[int] = set()
    received: Counter[int] = Counter()
    for number in range(rounds):
        with testing.broker(data_dir=tmp_path / "data") as broker:
            url = f"nsq://{broker.endpoints['nsqd_tcp']}"
            threads = [
                threading.Thread(target=_publish, args=(url, number * 1_000_000, acknowledged)),
                threading.Thread(target=_consume, args=(url, received)),
            ]
            for thread in threads:
                thread.start()
            # imports and first calls take their time
            before, deadline = len(acknowledged), time.monotonic() + 20
            while len(acknowledged) == before and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(random.uniform(0.05, 0.8))
            broker.process.kill()
            for thread in threads:
                thread.join(60)
    with testing.broker(data_dir=tmp_path / "data") as broker:
        url = f"nsq://{broker.endpoints['nsqd_tcp']}"
        with Consumer(url, "killed", channel="c", timeout_s=2.0) as consumer:
            for message in consumer:
                received[int(message.payload or b"-1")] += 1
    lost = acknowledged - set(received)
    again = sum(count - 1 for count in received.values())
    record_figures(
        "kill -9 under NSQ clients", rounds=rounds, acknowledged=len(acknowledged), lost=len(lost), again=again
    )
    assert acknowledged and not lost


def _publish(url: str, first: int, acknowledged: set[int]) -> None:
    """Until the broker is gone."""
    random, number = Random(first), first
    try:
        with Producer(url, retries=0, timeout_s=5.0) as producer:
            while True:
                count = random.randint(1, 50)
                for each in range(number, number + count):
                    producer.send("killed", b"%d" % each, headers=[("n", each)])
                producer.flush()
                acknowledged.update(range(number, number + count))
                number += count
    except LadingError:
        return


def _consume(url: str, received: Counter[int]) -> None:
    try:
        with Consumer(url, "killed", channel="c", timeout_s=3.0, in_flight=50) as consumer:
            for message in consumer:
                received[int(message.payload or b"-1")] += 1
    except LadingError:
        return
