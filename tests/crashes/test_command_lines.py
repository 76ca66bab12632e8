"""Real commands of ``lading``, killed at random moments, and started again by the same line until one ends by itself.

Each is a process of its own with all that it starts. The moments are random parts of the time that the command takes
if nothing ends it; the matrix of ``test_writers.py`` ends the same commands at each step, by name.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lading import read_arrow, testing
from lading.transports.fitting import fill_missing_columns
from lading.transports.open import open_transport
from lading.transports.topics import UnknownTopic
from tests.crashes.writers import AT_LEAST_ONCE, ONCE

FACES: Final = {"lading": "admin", "kafka": "kafka", "iggy": "iggy_tcp", "nsq": "nsqd_tcp"}
MESSAGES: Final = 30_000
"""Of the source in full; the ordinary run has a fifth."""
KILLS: Final = 3
"""Kills of a command and target in full: those that come before the command ends."""
TIMEOUT_S: Final = 300
RESTARTS_MAX: Final = 40
CHANNEL: Final = "channel"


class Place(NamedTuple):
    """Where a command reads and writes."""

    broker: testing.BrokerProcess
    target: str
    name: str
    directory: Path

    @property
    def url(self) -> str:
        """The URL of the target."""
        return f"{self.target}://{self.broker.endpoints[FACES[self.target]]}"


def _mirror(place: Place) -> list[str]:
    return ["mirror", place.broker.url, place.url, "--topic", "source", "--rename", f"source={place.name}",
            "--state", str(place.directory / "state")]  # fmt: skip


def _redrive(place: Place) -> list[str]:
    return ["dead-letters", "redrive", place.broker.url, "letters", "--to", place.name, "--server", place.url,
            "--state", str(place.directory / "state"), "--max-replays", "0"]  # fmt: skip


def _run_pipeline(place: Place) -> list[str]:
    file = place.directory / "pipeline.toml"
    file.write_text(
        f'[pipeline]\nid = "{place.name}"\nmax_rows = 1000\nstate = "./state"\n'
        f'[source]\nfrom = "{place.broker.url}"\ntopic = "source"\n[headers]\ncarrier = "string"\n'
        f'[good]\nto = "{place.url}/{place.name}"\n[quarantine]\nto = "parquet:./quarantine"\n'
    )
    return ["pipeline", "run", str(file), "--local"]


def _redrive_quarantine(place: Place) -> list[str]:
    return ["quarantine", "redrive", str(_judging_file(place)), "--to", place.name]


def _judging_file(place: Place) -> Path:
    """Return the file of a pipeline whose messages are all quarantined; it is written on the first call."""
    file = place.directory / "judging.toml"
    if not file.exists():
        file.write_text(
            f'[pipeline]\nid = "{place.name}"\n'
            f'[source]\nfrom = "{place.broker.url}"\ntopic = "source"\nserver = "{place.url}"\n'
            '[quality]\nmax_failure_ratio = 1.0\n[headers]\nnobody-has-this = "string required"\n'
            '[good]\nto = "parquet:./good"\n[quarantine]\nto = "parquet:./bad"\n'
        )
    return file


def _send(place: Place) -> list[str]:
    return ["message", "send", place.name, "--json", "--server", place.url]


def _spool(place: Place) -> list[str]:
    queue = f"nsq://{place.broker.endpoints['nsqd_tcp']}"
    return ["spool", queue, place.name, str(place.directory / "spool"), "--once", "--channel", CHANNEL]


def _ingest(place: Place) -> list[str]:
    return ["ingest", "source", str(place.directory / "table"), "--local", "--from", place.broker.url, "--columns",
            "payload", "--max-rows", "1000"]  # fmt: skip


def _restore(place: Place) -> list[str]:
    return ["restore", str(place.directory.parent / "backups"), str(place.directory / "restored")]


COMMANDS: Final[dict[str, Callable[[Place], list[str]]]] = {
    "mirror": _mirror, "dead-letters redrive": _redrive, "quarantine redrive": _redrive_quarantine,
    "pipeline run --local": _run_pipeline, "message send": _send,
    "spool": _spool, "ingest --local": _ingest, "restore": _restore,
}  # fmt: skip
_SPARED: Final = {"iggy": AT_LEAST_ONCE, "nsq": AT_LEAST_ONCE}
PROMISES: Final[dict[str, dict[str, str]]] = {
    "mirror": {"lading": ONCE, "kafka": ONCE, "iggy": ONCE, "nsq": AT_LEAST_ONCE},
    "dead-letters redrive": {"lading": ONCE, "kafka": ONCE, **_SPARED},
    "quarantine redrive": {"lading": ONCE, "kafka": ONCE, **_SPARED},
    "pipeline run --local": {"lading": ONCE, "kafka": ONCE, "iggy": ONCE, "nsq": AT_LEAST_ONCE},
    "message send": {"lading": AT_LEAST_ONCE, "kafka": AT_LEAST_ONCE, **_SPARED},
    "spool": {"directory": AT_LEAST_ONCE},
    "ingest --local": {"table": ONCE},
    "restore": {"data directory": ONCE},
}
"""What each target promises if its command is killed and run again."""
ORDINARY: Final = [("mirror", "kafka")]
ONLY: Final = os.environ.get("LADING_TEST_COMMAND", "")
"""A full run takes long: it runs the commands that begin so."""


@pytest.mark.timeout(3000)
@pytest.mark.turns(2, part=0)
def test_commands_that_are_killed_at_random(tmp_path: Path, full: bool) -> None:
    cells = [(name, target) for name, targets in PROMISES.items() for target in targets] if full else ORDINARY
    cells = [(name, target) for name, target in cells if not full or name.startswith(ONLY)]
    messages, kills = (MESSAGES, KILLS) if full else (MESSAGES // 5, 1)
    chance = random.Random(17)
    broken = []
    killed_in_all = 0
    with testing.broker(data_dir=tmp_path / "data", settings={"durability": "os"}) as broker:
        sent = fill_sources(broker, messages, tmp_path, {name for name, _ in cells})
        for number, (name, target) in enumerate(cells):
            # the first run ends by itself, and says how long it takes
            free = make_place(broker, target, f"free{number}", tmp_path, list(sent))
            prepare(name, free)
            begin = time.monotonic()
            assert run_and_kill(COMMANDS[name](free), free, None) == 0, (free.directory / "output").read_text()[-2000:]
            whole_s = time.monotonic() - begin
            place = make_place(broker, target, f"killed{number}", tmp_path, list(sent))
            prepare(name, place)
            line, killed = COMMANDS[name](place), 0
            for _ in range(RESTARTS_MAX):
                # imports take most of a short run
                delay_s = whole_s * chance.uniform(0.3, 1) if killed < kills else None
                status = run_and_kill(line, place, delay_s)
                killed += status == -signal.SIGKILL
                if name == "restore" and (place.directory / "restored").exists():
                    # what is there is whole, and would be refused
                    break
                if status == 0 and (killed >= kills or name in ENDED_ONCE):
                    break
                assert status in (0, -signal.SIGKILL), (place.directory / "output").read_text()[-2000:]
            arrived = read_target(name, place)
            lost, doubled = (sent - arrived).total(), (arrived - sent).total()
            killed_in_all += killed
            promise = PROMISES[name][target]
            print(f"lading {name} to {target} ({promise}): killed {killed} times, lost {lost}, doubled {doubled}")
            if lost or (doubled and promise == ONCE):
                broken.append((name, target, lost, doubled))
    print(f"commands: killed {killed_in_all} times, {len(broken)} broken promises")
    assert broken == []
    assert killed_in_all >= len(cells) // 2


ENDED_ONCE: Final = frozenset({"message send", "restore"})
"""Commands that are not run again after they came to their end: they send all again, or refuse what is there."""


def make_place(
    broker: testing.BrokerProcess, target: str, name: str, directory: Path, payloads: Sequence[bytes]
) -> Place:
    """Make a directory, and the topic that a command writes, or the queue that it reads."""
    own = directory / name
    own.mkdir()
    place = Place(broker, target, name, own)
    if target in FACES:
        transport = open_transport(place.url)
        transport.create_topic(name, 1)
        transport.close()
    if target == "directory":
        # a channel gets what is published after it was created
        transport = open_transport(f"nsq://{broker.endpoints['nsqd_tcp']}")
        transport.create_topic(name, 1)
        transport.join(CHANNEL, [name]).leave()
        for batch in make_batches(payloads, []):
            transport.send(name, 0, batch)
        transport.close()
    return place


def prepare(name: str, place: Place) -> None:
    """Run what comes before a command, to its end: the quarantine that is redriven is filled by a pipeline."""
    if name == "quarantine redrive":
        status = run_and_kill(["pipeline", "run", str(_judging_file(place)), "--local"], place, None)
        assert status == 0, (place.directory / "output").read_text()[-2000:]


def make_batches(payloads: Sequence[bytes], headers: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Yield messages, all of which have the same headers."""
    for first in range(0, len(payloads), 500):
        part = payloads[first : first + 500]
        batch = fill_missing_columns(pa.record_batch({"payload": pa.array(part, pa.binary())}))
        at = batch.schema.get_field_index("headers")
        column = pa.array([headers] * len(part), batch.schema.field(at).type)
        yield batch.set_column(at, batch.schema.field(at), column)


def fill_sources(broker: testing.BrokerProcess, count: int, directory: Path, names: set[str]) -> Counter[bytes]:
    """Fill what the commands read; return the payloads that have to arrive."""
    payloads = [b"%d" % number for number in range(count)]
    transport = open_transport(broker.url)
    facts = (("topic", b"origin"), ("partition", b"0"), ("offset", b"0"))
    letter = [{"key": f"__connect.errors.{key}", "kind": 1, "value": value} for key, value in facts]
    for topic, headers in (("source", []), ("letters", letter)):
        transport.create_topic(topic, 1)
        for batch in make_batches(payloads, headers):
            transport.send(topic, 0, batch)
    transport.close()
    (directory / "lines").write_text("".join(json.dumps({"payload": text.decode()}) + "\n" for text in payloads))
    if "restore" in names:
        line = [sys.executable, "-m", "lading", "backup", "create", str(broker.data_dir), str(directory / "backups")]
        subprocess.run(line, check=True, capture_output=True, timeout=TIMEOUT_S)
    return Counter(payloads)


def run_and_kill(line: list[str], place: Place, delay_s: float | None) -> int:
    """Run a command; kill it and its children after a delay, if it has not ended. Return its exit code."""
    with (place.directory / "output").open("wb") as output, (place.directory.parent / "lines").open("rb") as lines:
        process = subprocess.Popen(
            [sys.executable, "-m", "lading", *line], stdin=lines, stdout=output, stderr=output, start_new_session=True
        )
        try:
            return process.wait(TIMEOUT_S if delay_s is None else delay_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return process.wait()


def read_target(name: str, place: Place) -> Counter[bytes]:
    """Return the payloads that readers of the target find."""
    if name == "ingest --local":
        found: Any = pq.read_table(place.directory / "table", columns=["payload"])
        return Counter(found.column("payload").to_pylist())
    url, topic = place.broker.url, place.name
    if name == "restore":
        url, topic = str(place.directory / "restored"), "source"
    if name == "spool":
        url = str(place.directory / "spool")
    try:
        found = read_arrow(url, topic, "payload", verify_checksum=False)
        return Counter(found.column("payload").to_pylist())
    except UnknownTopic:
        return Counter()
