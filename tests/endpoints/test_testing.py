"""`lading.testing`: brokers end with the process that started them, and one that hangs is told and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lading import testing
from lading.model.errors import LocalError
from lading.settings import EndpointSettings

TIMEOUT_S = 30

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


def test_a_broker_that_hangs_is_told_and_killed() -> None:
    running: list[testing.Running] = []
    with pytest.raises(LocalError, match="did not hear SIGTERM") as told, testing.broker() as broker:
        running.append(broker)
        os.kill(broker.pid, signal.SIGSTOP)
        began = time.monotonic()
    # 5 s where the machine has nothing else to do
    assert time.monotonic() - began < 2 * TIMEOUT_S
    assert running[0].process.returncode is not None
    assert str(broker.pid) in str(told.value)


SPINNING = """
import asyncio, os, sys
from pathlib import Path
from lading import serve
from lading.settings import load
from lading.parent_pipe import end_with_parent

end_with_parent()

def announce(line):
    print(line, flush=True)
    asyncio.get_running_loop().call_later(0.2, spin)

def spin():
    print("spinning", flush=True)
    while True:
        pass

settings = load(None, sys.argv[1:]).settings
with serve.locked(settings.data), serve._runner() as runner:
    runner.run(serve.serve(settings, announce=announce))
"""


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
