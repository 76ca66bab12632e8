"""The peer of a connection as log lines name it, and its mistake that a protocol cannot tell: TLS on a plain port."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from ...log_lines import origin
from ...settings import Address

TLS_HELLO: Final = (
    "a TLS hello came to a plain port; switch TLS off in the client, or on in the endpoint's settings (tls.enabled)"
)
HANDSHAKE_BYTE: Final = 22
"""The first byte of a connection that begins with TLS."""
_TLS_MAJOR: Final = 3
_CLIENT_HELLO: Final = 1
_TYPE_AT: Final = 5


def is_tls_hello(received: Sequence[int]) -> bool:
    """Return whether the first bytes of a connection are those of a TLS client: a handshake record with its hello."""
    if len(received) < 2 or received[0] != HANDSHAKE_BYTE or received[1] != _TLS_MAJOR:
        return False
    return len(received) <= _TYPE_AT or received[_TYPE_AT] == _CLIENT_HELLO


def peer_of(transport: asyncio.BaseTransport | None) -> str:
    """Return ``host:port`` of the client at the other end; empty where the connection is gone."""
    address = transport.get_extra_info("peername") if transport is not None else None
    return str(Address(*address[:2])) if address else ""


def origin_of(endpoint: str, transport: asyncio.BaseTransport | None) -> dict[str, str]:
    """Return what a logger takes as ``extra`` for a line about this connection."""
    return origin(endpoint, peer_of(transport))


def close_sending(transport: asyncio.WriteTransport) -> None:
    """Tell the client that no more comes. Nothing happens if it has reset the connection, as the loop will say soon."""
    if transport.can_write_eof():
        with suppress(OSError):
            transport.write_eof()
