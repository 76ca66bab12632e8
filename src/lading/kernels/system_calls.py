"""Calls of the system within kernels, each with its result and error number in one: Linux only.

A result below 0 is an error number with its sign changed. A call that a signal has interrupted is made again. In
bounds: each routine passes a part of its array to the system, whose bounds its caller has checked.
"""

from __future__ import annotations

import errno
from typing import Any, Final

import numba

from .arrays import Bytes
from .error_number import read_error_number
from .memory import address
from .signature import routine

types: Any = numba.types

_FD, _SIZE = types.int32, types.int64
_epoll_wait = types.ExternalFunction("epoll_wait", _FD(_FD, types.voidptr, _FD, _FD))
_recv = types.ExternalFunction("recv", _SIZE(_FD, types.voidptr, _SIZE, _FD))
_send = types.ExternalFunction("send", _SIZE(_FD, types.voidptr, _SIZE, _FD))
_EINTR: Final = errno.EINTR
_DONTWAIT, _NOSIGNAL = 0x40, 0x4000
"""``MSG_DONTWAIT`` and ``MSG_NOSIGNAL`` of Linux: never wait, and no SIGPIPE."""


@routine
def wait_ready(epoll: int, events: Bytes, count_max: int) -> int:
    """Fill ``events`` with the files that are ready now, ``count_max`` at most, and return how many there are."""
    while True:
        count: int = _epoll_wait(epoll, address(events, 0), count_max, 0)
        if count >= 0:
            return count
        error: int = read_error_number()
        if error != _EINTR:
            return -error


@routine
def receive(file: int, target: Bytes, at: int, size: int) -> int:
    """Read at most ``size`` bytes of a socket to ``target[at:]`` and return how many; 0: it has ended."""
    while True:
        got: int = _recv(file, address(target, at), size, _DONTWAIT)
        if got >= 0:
            return got
        error: int = read_error_number()
        if error != _EINTR:
            return -error


@routine
def send_part(file: int, data: Bytes, at: int, size: int) -> int:
    """Send ``size`` bytes from ``data[at:]`` to a socket and return how many it has taken."""
    while True:
        sent: int = _send(file, address(data, at), size, _DONTWAIT | _NOSIGNAL)
        if sent >= 0:
            return sent
        error: int = read_error_number()
        if error != _EINTR:
            return -error
