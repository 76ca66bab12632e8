"""The peer of a connection as log lines name it, and a mistake that no protocol can report: it speaks another one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from ...runtime.log_lines import origin
from ...settings.settings import Address

TLS_HELLO: Final = (
    "a TLS hello came to a plain port; switch TLS off in the client, or on in the endpoint's settings (tls.enabled)"
)
HANDSHAKE_BYTE: Final = 22
"""The first byte of a connection that begins with TLS."""
_TLS_MAJOR: Final = 3
_CLIENT_HELLO: Final = 1
_TYPE_AT: Final = 5
_HEAD_BYTES: Final = 8
_API_AT: Final = 4
_WRONG_PORT: Final = "{} came to a port of another protocol; name the port of {} in the client"
_HTTP_WORDS: Final = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI ")
"""The beginnings of a request line that distinguish it from any length that a protocol allows."""
_NSQ_MAGICS: Final = {
    b"  V2": ("a client of nsqd", "the endpoint nsqd_tcp"),
    b"  V1": ("a client of nsqlookupd", "the endpoint nsqlookupd_tcp"),
}
_KAFKA_FIRST_APIS: Final = (b"\x00\x12", b"\x00\x11", b"\x00\x03")
"""The possible first requests of a Kafka client: ApiVersions, SaslHandshake, Metadata."""


def is_tls_hello(received: Sequence[int]) -> bool:
    """Return whether the first bytes of a connection are those of a TLS client: a handshake record with its hello."""
    if len(received) < 2 or received[0] != HANDSHAKE_BYTE or received[1] != _TLS_MAJOR:
        return False
    return len(received) <= _TYPE_AT or received[_TYPE_AT] == _CLIENT_HELLO


def name_other_protocol(received: Sequence[int], *, is_http: bool = False) -> str | None:
    """Return a sentence for the log on a connection that begins as another protocol does, or None if it is unknown.

    For first bytes that the endpoint's own protocol, HTTP if ``is_http``, does not allow: those of Iggy and Kafka alone
    would prove little.
    """
    if is_tls_hello(received):
        return TLS_HELLO
    head = bytes(received[:_HEAD_BYTES])
    if not is_http and head[:4] in _HTTP_WORDS:
        return _WRONG_PORT.format("an HTTP request", "an HTTP endpoint")
    if head[:4] in _NSQ_MAGICS:
        return _WRONG_PORT.format(*_NSQ_MAGICS[head[:4]])
    if is_kafka_request(head):
        return _WRONG_PORT.format("a Kafka request", "the endpoint kafka")
    if len(head) == _HEAD_BYTES and head[2:4] == b"\0\0" and head[6:8] == b"\0\0":
        # the size of a small request, its low byte first, and a small code; or the zeros of the current generation
        return _WRONG_PORT.format("an Iggy request", "the endpoint iggy_tcp")
    return None


def is_kafka_request(received: Sequence[int]) -> bool:
    """Return whether the first bytes of a connection are a size, its high byte first, and what Kafka clients ask first.

    Iggy reads a size of some from them, but no code of its own.
    """
    head = bytes(received[:_HEAD_BYTES])
    return head[:2] == b"\0\0" and head[4:6] in _KAFKA_FIRST_APIS


def name_iggy_client(received: Sequence[int]) -> str | None:
    """Return the sentence of ``name_other_protocol`` for what Kafka's framing allows, and yet only Iggy begins with.

    Kafka reads megabytes from the size of a frame of Iggy's below 7 bytes, and no API from its code: they end at 255.
    """
    head = bytes(received[:_HEAD_BYTES])
    # a frame of the current generation begins with zeros
    is_other = head == bytes(_HEAD_BYTES) or (len(head) > _API_AT and head[_API_AT] != 0)
    return name_other_protocol(head) if is_other and not is_kafka_request(head) else None


def peer_of(transport: asyncio.BaseTransport | None) -> str:
    """Return ``host:port`` of the client at the other end; empty if the connection is closed."""
    address = transport.get_extra_info("peername") if transport is not None else None
    return str(Address(*address[:2])) if address else ""


def origin_of(endpoint: str, transport: asyncio.BaseTransport | None) -> dict[str, str]:
    """Return what a logger takes as ``extra`` for a line about this connection."""
    return origin(endpoint, peer_of(transport))


def close_sending(transport: asyncio.WriteTransport) -> None:
    """Close the sending side. Does nothing if the client has reset the connection, which the loop reports soon."""
    if transport.can_write_eof():
        with suppress(OSError):
            transport.write_eof()
