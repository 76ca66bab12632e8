"""A loop that stands still ends its process with the stacks told; a process that was stopped as a whole goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx

from lading import testing
from lading.endpoints.base.watchdog import STALLED_EXIT_CODE, STEPS, Watchdog
from lading.settings.settings import EndpointSettings
from tests import forked_command

TIMEOUT_S = 60
OTHERS = [name for name in EndpointSettings.model_fields if name != "admin"]
ADMIN_ALONE = ["endpoints.admin.address=127.0.0.1:0", *(f"endpoints.{name}.enabled=false" for name in OTHERS)]
BROKER = """
import asyncio, signal, sys, time
from lading.serve import serve
from lading.settings.loading import load

def hang():
    while True:
        time.sleep(3600)

def announce(line):
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, hang)
    print(line, flush=True)

serve._print = announce
serve.run(load(sets=sys.argv[1:]).settings)
"""
"""``lading serve`` that hangs at SIGUSR1."""


class Loop:
    """Keeps what it is asked to run until it has a turn."""

    def __init__(self) -> None:
        self.asked: list[Callable[[], None]] = []

    def turn(self) -> None:
        while self.asked:
            self.asked.pop()()


def test_only_a_loop_without_a_sign_is_ended() -> None:
    loop, ends = Loop(), [0]

    def ended() -> None:
        ends[0] += 1

    dog = Watchdog(loop.asked.append, ended)
    for _ in range(10 * STEPS):
        dog.step()
        loop.turn()
    for _ in range(STEPS):
        dog.step()
    assert ends == [0]
    loop.turn()
    for _ in range(STEPS):
        dog.step()
    assert ends == [0]
    for _ in range(10 * STEPS):
        dog.step()
    # once, and the loop was asked once
    assert (ends, len(loop.asked)) == ([1], 1)


def hanging(data: Path, stall_timeout_ms: int, stderr: int) -> subprocess.Popen[str]:
    """A broker whose loop stands still."""
    told = [f"data={data}", f"broker.stall_timeout_ms={stall_timeout_ms}", *ADMIN_ALONE]
    process = forked_command.ForkedCommand(
        [sys.executable, "-c", BROKER, *told],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready")
    process.send_signal(signal.SIGUSR1)
    return process


def test_a_broker_that_hangs_ends_with_its_stacks(tmp_path: Path) -> None:
    process = hanging(tmp_path, 1200, subprocess.PIPE)
    # which a loop that stands still does not hear
    process.terminate()
    _, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == STALLED_EXIT_CODE
    assert "event loop: stood still for 1200 ms (broker.stall_timeout_ms)" in said
    assert "in hang" in said and "lading/endpoints/base/watchdog.py" in said


def test_standard_error_that_nobody_reads_does_not_keep_it(tmp_path: Path) -> None:
    unread, full = os.pipe()
    os.set_blocking(full, False)
    with suppress(BlockingIOError):
        while True:
            os.write(full, bytes(64))
    os.set_blocking(full, True)
    # room for what a start says, and no more
    os.read(unread, 8192)
    process = hanging(tmp_path, 600, full)
    assert process.wait(TIMEOUT_S) in (STALLED_EXIT_CODE, -signal.SIGALRM)
    assert process.stdout is not None
    for each in (process.stdout, os.fdopen(unread), os.fdopen(full, "w")):
        each.close()


def test_a_process_that_was_stopped_goes_on() -> None:
    with testing.broker(broker__stall_timeout_ms=600) as broker:
        broker.process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        broker.process.send_signal(signal.SIGCONT)
        time.sleep(1.5)
        assert httpx.get(f"http://{broker.endpoints['admin']}/health", timeout=TIMEOUT_S).status_code == 200
        assert broker.process.poll() is None
        assert "stood still" not in broker.log_file.read_text()
