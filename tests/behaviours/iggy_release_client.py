"""A client of each release of Iggy with the classic framing, over TCP, written from the protocol's page.

Nothing of it is the code that it tests: the layouts stand in docs/reference/protocols/iggy.md#releases. It sends and
shows what the release has, and knows no carrier.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lading.model.errors import RemoteError
from tests.endpoints.frames import Frames, header

if TYPE_CHECKING:
    from tests.behaviours.rows import HeaderRow, Seen, Sending

STATES = {1: "available", 10: "unavailable", 20: "poisoned", 30: "marked_for_deletion"}
OFFSET, LAST, NEXT = 1, 4, 5
CONSUMER, GROUP = 1, 2
STREAM = "default"
STREAM_ID = 0xFFFF_FFFF
STREAM_EXISTS = (1011, 1012)


@dataclass(frozen=True)
class Shape:
    """How a release differs from others."""

    version: str | None = None
    """What its login says; empty where it says none, None where there is no login."""
    fixed_bytes: int = 41
    """In front of the headers of a polled message; of zero-copy messages, in front of the payload."""
    is_zero_copy: bool = False
    has_key_kinds: bool = False
    first: int = 1
    """How partitions are counted."""

    @property
    def has_states(self) -> bool:
        """Whether a polled message says its state."""
        return self.fixed_bytes == 41

    @property
    def head_bytes(self) -> int:
        """In front of polled messages."""
        return 4 if self.version is None else 16


SHAPES = {
    "0.0.30": Shape(fixed_bytes=36),
    "0.0.40": Shape(),
    "0.1": Shape(""),
    "0.2": Shape(""),
    "0.4": Shape(""),
    "0.5": Shape("0.5.0"),
    "0.6": Shape("0.6.31"),
    "0.6.60": Shape("0.6.202"),
    "0.7": Shape("0.7.0", 56, is_zero_copy=True),
    "0.8": Shape("0.8.0", 56, is_zero_copy=True, first=0),
    "0.9": Shape("0.9.0", 64, is_zero_copy=True, has_key_kinds=True, first=0),
    "0.10": Shape("0.10.0", 64, is_zero_copy=True, has_key_kinds=True, first=0),
}


class IggyReleaseSession:
    """One client; topics lie in stream ``default``, as flat names do."""

    holds_kinds: ClassVar[bool] = True

    def __init__(self, release: str, address: str) -> None:
        self._release, self._shape, self._address = release, SHAPES[release], address
        self._frames = self._connect()

    def _connect(self) -> Frames:
        frames = Frames(self._address)
        if self._shape.version is not None:
            version = b"" if self._shape.version == "" else _long(self._shape.version) + _long("")
            _require(frames.ask(38, _short("iggy") + _short("iggy") + version), "login")
        return frames

    def create_topic(self, topic: str, partitions: int) -> None:
        status, _ = self._frames.ask(202, self._new_stream())
        if status not in (0, *STREAM_EXISTS):
            raise RemoteError(f"stream {STREAM}: status {status}", code=status)
        if self._shape.version is not None:
            _require(self._frames.ask(302, self._new_topic(topic, partitions)), topic)
            return
        # without a server that chooses ids, the first that nobody has
        for number in range(1, 10_000):
            request = _named(STREAM) + struct.pack("<II", number, partitions) + topic.encode()
            status, _ = self._frames.ask(302, request)
            if status != 2012:
                _require((status, b""), topic)
                return

    def _new_stream(self) -> bytes:
        if self._shape.version is None:
            return struct.pack("<I", STREAM_ID) + STREAM.encode()
        return (struct.pack("<I", STREAM_ID) if self._shape.first else b"") + _short(STREAM)

    def _new_topic(self, topic: str, partitions: int) -> bytes:
        count = struct.pack("<I", partitions)
        ident = bytes(4) if self._shape.first else b""
        kept = {
            "0.1": struct.pack("<I", 0),
            "0.2": struct.pack("<IQB", 0, 0, 1),
            "0.4": struct.pack("<BIQB", 1, 0, 0, 1),
        }
        bounds = kept.get(self._release, struct.pack("<BQQB", 1, 0, 0, 1))
        return _named(STREAM) + ident + count + bounds + _short(topic)

    def send(self, topic: str, messages: Sequence[Sending], partition: int | None = None) -> None:
        where = b"\1\0" if partition is None else struct.pack("<BBI", 2, 4, partition + self._shape.first)
        # one request a message: a balanced request goes to one partition as a whole
        for message in messages:
            request = self._to_send(_named(STREAM) + _named(topic) + where, message)
            _require(self._frames.ask(101, request), f"topic {topic}, partition {partition}")

    def _to_send(self, where: bytes, message: Sending) -> bytes:
        payload = message.payload or b""
        headers = b"".join(self._header(*row) for row in message.headers)
        if not self._shape.is_zero_copy:
            return where + bytes(16) + struct.pack("<I", len(headers)) + headers + _sized(payload)
        fixed = bytes(48) + struct.pack("<II", len(headers), len(payload)) + bytes(self._shape.fixed_bytes - 56)
        index = struct.pack("<IIQ", 0, len(fixed) + len(payload) + len(headers), 0)
        return _sized(where + struct.pack("<I", 1)) + index + fixed + payload + headers

    def _header(self, key: str, kind: int, value: bytes | None) -> bytes:
        of_key = b"\2" if self._shape.has_key_kinds else b""
        return of_key + header(key.encode(), kind, value or b"")

    def read(self, topic: str, partition: int = 0, offset: int = 0, count: int = 1000) -> list[Seen]:
        return self._poll(self._frames, topic, CONSUMER, 77, partition, OFFSET, offset, count)

    def end(self, topic: str, partition: int = 0) -> int:
        last = self._poll(self._frames, topic, CONSUMER, 77, partition, LAST, 0, 1)
        return last[0].offset + 1 if last else 0

    def read_as_group(self, topic: str, group: str, count: int) -> list[Seen]:
        member = self._connect()
        seen: list[Seen] = []
        with contextlib.closing(member):
            where, number = _named(STREAM) + _named(topic), int(group)
            ident = struct.pack("<I", number)
            if self._shape.version is None:
                made, reference = ident, ident
            else:
                made = (ident if self._shape.first else b"") + _short(f"group-{group}")
                reference = _named(f"group-{group}")
            status, _ = member.ask(602, where + made)
            assert status in (0, 5001, 5004)
            _require(member.ask(604, where + reference), f"group {group}")
            idle = 0
            while len(seen) < count and idle < 50:
                found = self._poll(member, topic, GROUP, reference, None, NEXT, 0, count - len(seen))
                idle = 0 if found else idle + 1
                seen += found
            _require(member.ask(605, where + reference), f"group {group}")
        return seen

    def _poll(
        self, frames: Frames, topic: str, kind: int, who: int | bytes, partition: int | None, start: int, value: int,
        count: int,
    ) -> list[Seen]:  # fmt: skip
        shape = self._shape
        if isinstance(who, int):
            who = struct.pack("<I", who) if shape.version is None else b"\1\4" + struct.pack("<I", who)
        number = struct.pack("<I", shape.first if partition is None else partition + shape.first)
        if shape.first == 0:
            number = (b"\0" if partition is None else b"\1") + number
        request = struct.pack("<B", kind) + who + _named(STREAM) + _named(topic) + number
        # a group's poll moves its position on
        request += struct.pack("<BQIB", start, value, count, kind == GROUP)
        body = _require(frames.ask(100, request), f"topic {topic}, partition {partition}")
        told = partition or 0
        if shape.version is not None and body:
            told = int.from_bytes(body[:4], "little") - shape.first
        return list(self._messages(told, body[shape.head_bytes :]))

    def _messages(self, partition: int, body: bytes) -> Iterator[Seen]:
        from tests.behaviours.rows import Seen

        shape, at, state = self._shape, 0, 1
        while at < len(body):
            if shape.is_zero_copy:
                (offset,) = struct.unpack_from("<Q", body, at + 24)
                headers_size, size = struct.unpack_from("<II", body, at + 48)
                start = at + shape.fixed_bytes
                payload, block = body[start : start + size], body[start + size : start + size + headers_size]
                at = start + size + headers_size
            else:
                (offset,) = struct.unpack_from("<Q", body, at)
                if shape.has_states:
                    state = body[at + 8]
                start = at + shape.fixed_bytes
                (headers_size,) = struct.unpack_from("<I", body, start - 4)
                block = body[start : start + headers_size]
                (size,) = struct.unpack_from("<I", body, start + headers_size)
                at = start + headers_size + 4 + size
                payload = body[at - size : at]
            yield Seen(partition, offset, payload, list(self._headers(block)), None, STATES[state])

    def _headers(self, block: bytes) -> Iterator[HeaderRow]:
        at = 0
        while at < len(block):
            if self._shape.has_key_kinds:
                assert block[at] == 2
                at += 1
            (size,) = struct.unpack_from("<I", block, at)
            key = block[at + 4 : at + 4 + size].decode()
            kind, value_size = struct.unpack_from("<BI", block, at + 4 + size)
            at += 9 + size + value_size
            yield key, kind, block[at - value_size : at]

    def close(self) -> None:
        self._frames.close()


def _require(answer: tuple[int, bytes], what: str) -> bytes:
    """The body of an answer; a status says no more than a number, so the client names what it asked for."""
    status, body = answer
    if status:
        raise RemoteError(f"{what}: status {status}", code=status)
    return body


def _short(text: str) -> bytes:
    return struct.pack("<B", len(text.encode())) + text.encode()


def _long(text: str) -> bytes:
    return _sized(text.encode())


def _sized(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def _named(text: str) -> bytes:
    return b"\2" + _short(text)
