"""A queue into a spool, by the process that Spark starts: nothing is lost when it is killed, duplicates are rare."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

import lading
from lading import Consumer, Producer
from lading.dialects.nsq.encode import record
from lading.model.errors import LocalError
from lading.spool.__main__ import acquire_lock
from lading.spool.filler import fill_spool
from lading.spool.spool_log import Spool, SpoolLocked, lock_spool
from lading.transports.nsq.queue import CODE
from tests import forked_command
from tests.interop.go_programs import RunningNsq, Unavailable, running

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNsq]:
    """Upstream's servers."""
    try:
        with running(tmp_path_factory.mktemp("nsq")) as servers:
            yield servers
    except Unavailable as reason:
        pytest.skip(str(reason))


class Child:
    """The ingest process."""

    def __init__(self, real: RunningNsq, topic: str, spool: Path, **options: Any) -> None:
        queue = f"nsq://{real.nsqlookupd_http}"
        command = [sys.executable, "-m", "lading.spool", queue, topic, "spark", str(spool), json.dumps(options)]
        self.process = forked_command.start(command, text=False, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def said(self) -> dict[str, Any]:
        """The next line it says."""
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def done(self, offset: int) -> None:
        """Tell it that everything before this offset was read."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"%d\n" % offset)
        self.process.stdin.flush()

    def end(self, *, kill: bool = False) -> int:
        """Kill it, or end its standard input; its exit code."""
        assert self.process.stdin is not None and self.process.stdout is not None
        if kill:
            self.process.kill()
        self.process.stdin.close()
        code = self.process.wait(20)
        self.process.stdout.close()
        return code


def sent(real: RunningNsq, topic: str, first: int, end: int) -> None:
    """Numbers as messages."""
    with Producer(f"nsq://{real.nsqd_tcp}") as producer:
        for number in range(first, end):
            producer.send(topic, b"%d" % number)


def spooled(spool: Path, topic: str) -> list[int]:
    """What lies in the spool."""
    if not list(spool.glob("topics/*/topic.json")):
        return []
    return [int(payload or b"-1") for payload in lading.read_arrow(str(spool), topic)["payload"].to_pylist()]


def test_a_spool_forgets_what_is_done_with_and_old(tmp_path: Path) -> None:
    hour_us = 3_600_000_000
    now_us = time.time_ns() // 1000
    spool = Spool(tmp_path / "spool", "t", segment_bytes=8192)
    for number in range(100):
        stored = record(1, bytes(16), 0, b"", b"%d" % number + bytes(200))
        spool.append(CODE, [stored], [now_us - (30 if number < 60 else 1) * hour_us])

    def first(done: int | None, keep_s: float) -> int:
        spool.trim(done, keep_s)
        spool.maintain()
        offsets: list[Any] = lading.read_arrow(str(tmp_path / "spool"), "t", columns="offset")["offset"].to_pylist()
        return int(offsets[0]) if offsets else 100

    assert first(0, 86_400) == 0
    half_read = first(45, 86_400)
    assert 0 < half_read <= 45
    # what is younger stays, though it was read; segments go as a whole
    old = first(100, 86_400)
    assert half_read < old <= 60
    assert first(None, 1800) == 100
    spool.close()
    again = Spool(tmp_path / "spool", "t")
    assert again.end == 100
    again.close()


@pytest.mark.turns(3, part=1)
def test_who_comes_for_a_moment_forgets_too(real: RunningNsq, tmp_path: Path) -> None:
    """A pipeline that runs now and then tells what is done just before it ends."""
    home = tmp_path / "spool"
    spool = Spool(home, "moment", segment_bytes=8192)
    for number in range(60):
        stored = record(1, bytes(16), 0, b"", b"%d" % number + bytes(200))
        spool.append(CODE, [stored], [time.time_ns() // 1000 - 10_000_000])
    spool.close()
    child = Child(real, "moment", home, keep_s=5)
    assert child.said() == {"event": "caught_up", "end": 60}
    child.done(45)
    assert child.end() == 0
    offsets: list[Any] = lading.read_arrow(str(home), "moment", columns="offset")["offset"].to_pylist()
    assert 0 < offsets[0] <= 45


def test_who_comes_while_another_ends_waits_for_that(tmp_path: Path) -> None:
    asked: list[bool] = []
    with ExitStack() as before, ExitStack() as after:
        before.enter_context(lock_spool(tmp_path))

        def ends() -> bool:
            asked.append(True)
            before.close()
            return False

        acquire_lock(after, tmp_path, ends)
        assert asked == [True]
        with pytest.raises(SpoolLocked):
            acquire_lock(ExitStack(), tmp_path, lambda: True)


@pytest.mark.turns(3, part=2)
def test_what_is_in_the_queue_comes_into_the_spool_and_is_finished(real: RunningNsq, tmp_path: Path) -> None:
    sent(real, "ingest", 0, 2000)
    child = Child(real, "ingest", tmp_path / "spool")
    assert child.said() == {"event": "caught_up", "end": 2000}
    second = Child(real, "ingest", tmp_path / "spool")
    assert second.said()["event"] == "taken"
    assert second.end() == 0
    sent(real, "ingest", 2000, 2500)
    with Consumer(str(tmp_path / "spool"), "ingest", timeout_s=10.0) as consumer:
        following = [next(consumer) for _ in range(2500)]
    assert [message.offset for message in following] == list(range(2500))
    assert sorted(int(message.payload or b"") for message in following) == list(range(2500))
    assert all(message.id is not None and message.timestamp_us > 0 for message in following)
    assert child.end() == 0
    with Consumer(f"nsq://{real.nsqd_tcp}", "ingest", channel="spark", timeout_s=0.3) as consumer:
        assert list(consumer) == []


@pytest.mark.turns(3, part=0)
def test_kill_9_of_the_ingest_process_loses_nothing(real: RunningNsq, tmp_path: Path, full: bool) -> None:
    """Upstream's nsqd gives unfinished messages again after their time-out; a short one is asked for."""
    random, count = Random(3), 0
    rounds = 20 if full else 3
    spool = tmp_path / "spool"
    command = [sys.executable, "-m", "lading.spool", f"nsq://{real.nsqd_tcp}", "killed", "spark", str(spool)]
    command.append(json.dumps({"message_timeout_s": 1, "in_flight": 200}))
    killed = 0
    for number in range(rounds + 1):
        sent(real, "killed", count, count + 3000)
        count += 3000
        before = len(spooled(spool, "killed"))
        child = forked_command.start(command, text=False, stdin=subprocess.PIPE)
        try:
            wanted = count if number == rounds else 0
            deadline = time.monotonic() + 60
            while len(found := spooled(spool, "killed")) == before or len(set(found)) < wanted:
                assert time.monotonic() < deadline, f"{len(set(found))} of {count} arrived"
                time.sleep(0.01 if number < rounds else 0.2)
            time.sleep(random.uniform(0, 0.05))
        finally:
            child.kill()
            child.wait(20)
            killed += 1
    found = spooled(spool, "killed")
    print(f"\ningest killed {killed} times: {count:,} sent, lost {count - len(set(found))}, twice {len(found) - count}")
    assert set(found) == set(range(count))


@pytest.mark.turns(3, part=1)
def test_the_command_takes_what_waits(real: RunningNsq, tmp_path: Path) -> None:
    sent(real, "command", 0, 300)
    command = [sys.executable, "-m", "lading.cli.main", "spool", f"nsq://{real.nsqlookupd_http}", "command"]
    done = forked_command.run([*command, str(tmp_path / "spool"), "--once"], timeout=100)
    assert done.returncode == 0, done.stderr
    assert "300 messages consumed" in done.stdout + done.stderr
    assert sorted(spooled(tmp_path / "spool", "command")) == list(range(300))


@pytest.mark.turns(3, part=1)
def test_what_cannot_be_is_said(real: RunningNsq, tmp_path: Path) -> None:
    Spool(tmp_path / "spool", "one").close()
    with pytest.raises(LocalError, match="is the spool of topic 'one'"):
        Spool(tmp_path / "spool", "two")
    (tmp_path / "data").mkdir()
    command = [sys.executable, "-m", "lading.spool", "nsq://127.0.0.1:1", "t", "c", str(tmp_path / "x")]
    broken = forked_command.run(command, timeout=60)
    assert broken.returncode == 1
    said = json.loads(broken.stdout)
    assert said["event"] == "failed" and "neither nsqlookupd nor nsqd is reachable" in said["message"]
    with pytest.raises(LocalError):
        fill_spool(str(tmp_path / "data"), "t", "c", tmp_path / "y", is_stopped=lambda: True, caught_up=print)
