"""`lading.testing`: brokers end with the process that started them, and one that hangs is told and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import pytest

from lading import testing
from lading.endpoints.base.watchdog import STALLED_EXIT_CODE
from lading.endpoints.http_shared import http
from lading.endpoints.io import connection
from lading.model.errors import LocalError
from lading.settings.settings import EndpointSettings
from tests import forked_command

TIMEOUT_S = 30


@pytest.fixture(autouse=True)
def kept_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs of brokers that hang are kept where they are cleaned up."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


ORPHANED = """
import time
from lading import testing

with testing.broker() as broker:
    print(broker.pid, flush=True)
    time.sleep(600)
"""


def is_running(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_a_broker_ends_with_a_test_run_that_is_killed() -> None:
    """`kill -9` of a test run left its brokers behind, each with its ports and its memory."""
    run = subprocess.Popen([sys.executable, "-c", ORPHANED], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    pid = int(run.stdout.readline())
    assert is_running(pid)
    run.kill()
    run.wait(TIMEOUT_S)
    run.stdout.close()
    deadline = time.monotonic() + TIMEOUT_S
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.turns(3, part=2)
def test_a_broker_that_hangs_is_told_and_killed() -> None:
    running: list[testing.BrokerProcess] = []
    with pytest.raises(LocalError, match="did not react to SIGTERM") as told, testing.broker() as broker:
        running.append(broker)
        os.kill(broker.pid, signal.SIGSTOP)
        began = time.monotonic()
    # 5 s where the machine has nothing else to do
    assert time.monotonic() - began < 2 * TIMEOUT_S
    assert running[0].process.returncode is not None
    assert str(broker.pid) in str(told.value)


HANGING = """
import asyncio, signal, sys, time
from pathlib import Path
from lading.serve import serve
from lading.broker.broker import Broker
from lading.settings.loading import load

def hang(*_):
    while True:
        time.sleep(3600)

def announce(line):
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, hang)
    print(line, flush=True)

if sys.argv[1] == "stop":
    Broker.stop = hang
serve._print = announce
serve.run(load(sets=sys.argv[2:]).settings, output="json")
"""
"""``lading serve`` that hangs at SIGUSR1, or at the end of its stop."""


def hanging(home: Path, when: str) -> testing.BrokerProcess:
    """A broker that hangs, started as ``testing.start`` does."""
    settings = [f"data={home / 'data'}", f"broker.stall_timeout_ms={testing.HANG_S * 1_000:.0f}"]
    settings += [f"endpoints.{name}.enabled=false" for name in EndpointSettings.model_fields]
    with (home / "stderr.log").open("wb") as stderr:
        began = time.monotonic()
        process = forked_command.ForkedCommand(
            [sys.executable, "-c", HANGING, when, *settings],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
        )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline()
    return testing.BrokerProcess(process, {}, home / "data", time.monotonic() - began, home / "stderr.log")


def require_told(told: LocalError, why: str) -> None:
    """What a person reads: what happened, where it hangs, and a log that is there."""
    assert why in str(told) and "in hang" in str(told)
    kept = Path(str(told).partition("its log is kept in ")[2].partition(",")[0])
    assert "in hang" in kept.read_text()


@pytest.mark.turns(3, part=0)
def test_a_broker_that_hangs_in_its_stop_is_told_and_killed(tmp_path: Path) -> None:
    """It had heard the signal, and was waited for a minute more."""
    running = hanging(tmp_path, "stop")
    began = time.monotonic()
    with pytest.raises(LocalError, match="did not stop within") as told:
        running.stop()
    require_told(told.value, f"broker {running.pid}: did not stop within")
    patience_s = max(testing.HANG_S, 2 * running.started_s)
    # what is added is for killing it, on a machine that has other work
    assert time.monotonic() - began < testing.DRAIN_S + patience_s + TIMEOUT_S
    assert running.process.returncode is not None


@pytest.mark.turns(3, part=1)
def test_a_broker_that_hangs_under_a_test_ends_by_itself_and_is_told(tmp_path: Path) -> None:
    """The test waited for its answer for a minute, and was then told of a connection that was closed."""
    running = hanging(tmp_path, "run")
    running.process.send_signal(signal.SIGUSR1)
    running.process.wait(2 * TIMEOUT_S)
    with pytest.raises(LocalError, match="its event loop stood still") as told:
        running.stop()
    require_told(told.value, f"broker {running.pid}: its event loop stood still")
    # told once: what a test does to clean up says it no more
    assert running.stop() == STALLED_EXIT_CODE


@pytest.mark.turns(2, part=0)
def test_brokers_of_tests_have_a_watchdog_with_little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    def arguments(broker: testing.BrokerProcess) -> bytes:
        return Path(f"/proc/{broker.pid}/cmdline").read_bytes()

    # a fork has the arguments of what it was forked from, and a prepared process, which only Popen itself is
    # given, reads them from its standard input
    monkeypatch.setattr(testing, "launch", partial(subprocess.Popen))
    with testing.broker() as broker:
        assert f"broker.stall_timeout_ms={testing.HANG_S * 1_000:.0f}".encode() in arguments(broker)
    with (
        pytest.raises(LocalError, match="its event loop stood still"),
        testing.broker(broker__stall_timeout_ms=60_000) as broker,
    ):
        assert b"broker.stall_timeout_ms=60000" in arguments(broker)
        # the alarm that a watchdog sets before its last words
        broker.process.send_signal(signal.SIGALRM)
        broker.process.wait(TIMEOUT_S)


def test_what_a_stop_may_take_is_what_endpoints_give_connections() -> None:
    assert {each.DRAIN_TIMEOUT_S for each in (http, connection)} == {testing.DRAIN_S}
    assert testing.STALLED_EXIT_CODES == (STALLED_EXIT_CODE, -signal.SIGALRM)


SPINNING = """
import asyncio, os, sys
from pathlib import Path
from lading.serve import serve
from lading.settings.loading import load
from lading.serve.parent_pipe import end_with_parent

end_with_parent()

def announce(line):
    print(line, flush=True)
    asyncio.get_running_loop().call_later(0.2, spin)

def spin():
    print("spinning", flush=True)
    while True:
        pass

settings = load(None, sys.argv[1:]).settings
with serve.lock_data_directory(settings.data), serve._runner() as runner:
    runner.run(serve.serve(settings, announce=announce))
"""


@pytest.mark.turns(2, part=1)
def test_a_loop_that_spins_ends_with_its_parent_too(tmp_path: Path) -> None:
    free = [f"endpoints.{name}.enabled=false" for name in EndpointSettings.model_fields]
    child = subprocess.Popen(
        [sys.executable, "-c", SPINNING, f"data={tmp_path}", *free],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None
    assert child.stdout.readline()
    # it spins when it is told to: the word comes from inside of the loop that never comes back
    assert child.stdout.readline() == b"spinning\n"
    child.stdin.close()
    assert child.wait(TIMEOUT_S) == -signal.SIGKILL
    child.stdout.close()
