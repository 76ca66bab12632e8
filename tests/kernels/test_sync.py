"""The sync loop, kernel and twin: one answer a file, errors by number, survives signals, ends with its pipe."""

from __future__ import annotations

import errno
import os
import select
import signal
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lading.kernels import engine, sync_fallback

CAPACITY = 8


@pytest.fixture(params=["kernel", "twin"])
def loop(request: pytest.FixtureRequest) -> Any:
    return sync_fallback.sync_rounds if request.param == "twin" else engine.load("lading.kernels.sync").sync_rounds


class Running:
    """A sync loop in its thread, with the two pipes that lead to it."""

    def __init__(self, loop: Callable[..., int]) -> None:
        self._inp, self.questions = os.pipe()
        self.answers, self._out = os.pipe()
        self.done = -1
        self.thread = threading.Thread(target=self._run, args=(loop,))
        self.thread.start()

    def _run(self, loop: Callable[..., int]) -> None:
        self.done = loop(self._inp, self._out, np.zeros(4 * CAPACITY, np.uint8), np.zeros(CAPACITY, np.uint8))

    def ask(self, *fds: int) -> bytes:
        os.write(self.questions, struct.pack(f"<{len(fds)}i", *fds))
        return self.read(len(fds))

    def read(self, count: int) -> bytes:
        answer = b""
        while len(answer) < count:
            assert select.select([self.answers], [], [], 10)[0], "no answer within 10 s"
            answer += os.read(self.answers, count - len(answer))
        return answer

    def stop(self) -> int:
        if self.questions >= 0:
            os.close(self.questions)
            self.questions = -1
            self.thread.join(10)
            for fd in (self._inp, self.answers, self._out):
                os.close(fd)
        return self.done


@pytest.fixture
def running(loop: Any) -> Iterator[Running]:
    started = Running(loop)
    yield started
    started.stop()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"x" * 10_000)
    yield fd
    os.close(fd)


def test_answers_each_file_in_order(running: Running, file: int) -> None:
    read_end, write_end = os.pipe()
    assert running.ask(file) == b"\0"
    # a pipe cannot be synced, a number that is no file even less
    assert running.ask(file, read_end, 1 << 20, file) == bytes([0, errno.EINVAL, errno.EBADF, 0])
    os.close(read_end)
    os.close(write_end)
    assert running.stop() == 5


def test_takes_more_files_than_one_turn_holds(running: Running, file: int) -> None:
    assert running.ask(*[file] * (3 * CAPACITY + 1)) == bytes(3 * CAPACITY + 1)


def test_waits_for_the_rest_of_a_number(running: Running, file: int) -> None:
    data = struct.pack("<2i", file, file)
    os.write(running.questions, data[:6])
    os.write(running.questions, data[6:])
    assert running.read(2) == b"\0\0"
    assert running.ask(file) == b"\0"
    assert running.stop() == 3


def test_a_signal_ends_nothing(running: Running, file: int) -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.siginterrupt(signal.SIGUSR1, True)
    try:
        for _ in range(20):
            ident = running.thread.ident
            assert ident is not None
            signal.pthread_kill(ident, signal.SIGUSR1)
            assert running.ask(file, file) == b"\0\0"
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert running.stop() == 40
