"""Threads that wait for the cluster in place of the event loop: how they are chosen, and how they end."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from threading import Condition, Thread
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from ..transports.kafka.transport import KafkaTransport


class ClusterThread(Thread, ABC):
    """One of these threads, with a transport of its own. ``_changed`` guards the state that it shares with the loop."""

    def __init__(
        self, name: str, open_transport: Callable[[], KafkaTransport], post: Callable[[Callable[[], None]], None]
    ) -> None:
        """``post`` has the event loop call a function soon, from any thread."""
        # one that still waits for the cluster ends with the process
        super().__init__(name=name, daemon=True)
        self._open_transport = open_transport
        self._post = post
        self._changed = Condition()
        self._is_ending = False

    def run(self) -> None:
        """Work with a transport of this thread."""
        transport = self._open_transport()
        self.work(transport)
        transport.close()

    @abstractmethod
    def work(self, transport: KafkaTransport) -> None:
        """Do the submitted work; return after ``end`` when all of it is done."""

    def end(self) -> None:
        """Have the thread end once the work submitted so far is done."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()


AnyThread = TypeVar("AnyThread", bound=ClusterThread)


class ThreadGroup(Generic[AnyThread]):
    """Threads of one kind; the work of one name is always done by the same thread, so that it stays in order."""

    def __init__(self, start: Callable[[], AnyThread], threads_count: int) -> None:
        self._threads = [start() for _ in range(threads_count)]
        for thread in self._threads:
            thread.start()

    def choose(self, name: str) -> AnyThread:
        """Return the thread that serves a name."""
        # the same for each gateway and start, unlike hash()
        return self._threads[zlib.crc32(name.encode()) % len(self._threads)]

    def close(self, timeout_s: float) -> None:
        """End the threads, and wait this long for each of them."""
        for thread in self._threads:
            thread.end()
        for thread in self._threads:
            thread.join(timeout_s)
