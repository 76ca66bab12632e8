"""Messages to a service manager: ready, reloading, stopping, alive (the protocol of systemd's sd_notify(3)).

Without a manager (no ``NOTIFY_SOCKET`` in the environment) nothing is sent. Signs of life come from the event loop, so
that a process whose loop hangs is restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Final

log = logging.getLogger("lading")

SOCKET: Final = "NOTIFY_SOCKET"
WATCHDOG_US: Final = "WATCHDOG_USEC"
WATCHDOG_PID: Final = "WATCHDOG_PID"
SIGNS_PER_DEADLINE: Final = 3
"""Three signs of life for each deadline: if one is late or lost, the manager does not restart the process."""


class ServiceManager:
    """The manager of this process, if there is one."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        variables = os.environ if environment is None else environment
        place = variables.get(SOCKET, "")
        # @ means the zero byte with which names outside of the file system begin
        self._address = f"\0{place[1:]}" if place.startswith("@") else place
        self.watchdog_s = _watchdog_s(variables) if place else None
        """A process is restarted after this many seconds without a sign of life; None: never."""

    def tell(self, *lines: str) -> None:
        """Send these lines to the manager. If that fails, a warning is logged, and the process continues."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as opened:
                opened.setblocking(False)
                opened.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            log.warning("service manager at %s: cannot send %s: %s", SOCKET, lines[0], error.strerror)

    def tell_ready(self) -> None:
        """Say that clients are served."""
        self.tell("READY=1", "STATUS=serving")

    def tell_reloading(self) -> None:
        """Say that settings are read again; ``tell_ready`` follows."""
        self.tell("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000}")

    def tell_stopping(self) -> None:
        """Report that the process stops: it responds to the requests it has, and accepts no others."""
        self.tell("STOPPING=1", "STATUS=stopping after the requests in flight")

    @contextlib.contextmanager
    def signs_of_life(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Have ``loop`` give signs of life until the end of the block, if the manager waits for them."""
        if self.watchdog_s is None:
            yield
            return
        period_s = self.watchdog_s / SIGNS_PER_DEADLINE
        handle: asyncio.TimerHandle | None = None

        def give() -> None:
            nonlocal handle
            self.tell("WATCHDOG=1")
            handle = loop.call_later(period_s, give)

        give()
        try:
            yield
        finally:
            if handle is not None:
                handle.cancel()


def _watchdog_s(variables: Mapping[str, str]) -> float | None:
    """Return the deadline for signs of life, or None if the manager expects none from this process."""
    deadline_us = variables.get(WATCHDOG_US, "")
    if (
        not deadline_us.isdigit()
        or not int(deadline_us)
        or variables.get(WATCHDOG_PID, str(os.getpid())) != str(os.getpid())
    ):
        return None
    return int(deadline_us) / 1e6
