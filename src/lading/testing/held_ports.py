"""Ports that a server keeps when it is restarted: in between the system assigns them to no other process."""

from __future__ import annotations

import random
import socket
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

LOOPBACK: Final = "127.0.0.1"
RANGE_FILE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST_PORT: Final = 15_000
"""Ports for datagrams are chosen from here to the system's own range."""
TRIES_MAX: Final = 1_000


class PortHolder(ExitStack):
    """Addresses of the loopback for servers that are started more than once; held until ``close`` or a block's end.

    A port is held by a socket that is bound with SO_REUSEADDR and never listens. Under Linux a server that sets the
    option too listens beside it, as often as it likes, while neither an outgoing connection nor a bind to port 0 gets
    the port. Elsewhere such a pair is refused: the address is then ``127.0.0.1:0``, and what the system chose at the
    first start may be taken before the second.
    """

    def hold(self) -> str:
        """Return ``host:port`` for a server over TCP."""
        if sys.platform != "linux":
            return f"{LOOPBACK}:0"
        holder = self.enter_context(socket.socket())
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((LOOPBACK, 0))
        return f"{LOOPBACK}:{holder.getsockname()[1]}"


def choose_datagram_address() -> str:
    """Return a free ``host:port`` for datagrams, below the ports that the system gives away.

    Two sockets for datagrams never share a port safely: a second one would take datagrams from the first.
    """
    if sys.platform != "linux":
        return f"{LOOPBACK}:0"
    end = int(RANGE_FILE.read_text().split()[0])
    for _ in range(TRIES_MAX):
        port = random.randrange(min(LOWEST_PORT, end // 2), end)
        with socket.socket(type=socket.SOCK_DGRAM) as tried, suppress(OSError):
            tried.bind((LOOPBACK, port))
            return f"{LOOPBACK}:{port}"
    return f"{LOOPBACK}:0"
