"""Headers arrive exactly as they were sent: keys, kinds, values, order, duplicates, nulls."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from lading.model.kinds import Kind
from tests.behaviours.rows import HeaderRow, Sending, Session

EVERY_KIND: list[HeaderRow] = [
    ("raw", 1, b"\x00\xff"),
    ("string", 2, "grüß".encode()),
    ("bool", 3, b"\x01"),
    ("int8", 4, struct.pack("<b", -128)),
    ("int16", 5, struct.pack("<h", -2)),
    ("int32", 6, struct.pack("<i", 1 << 30)),
    ("int64", 7, struct.pack("<q", -(1 << 63))),
    ("int128", 8, (-(1 << 127)).to_bytes(16, "little", signed=True)),
    ("uint8", 9, b"\xff"),
    ("uint16", 10, struct.pack("<H", 65_535)),
    ("uint32", 11, struct.pack("<I", 1 << 31)),
    ("uint64", 12, struct.pack("<Q", (1 << 64) - 1)),
    ("uint128", 13, ((1 << 128) - 1).to_bytes(16, "little")),
    ("float32", 14, struct.pack("<f", float("inf"))),
    ("float64", 15, struct.pack("<d", float("nan"))),
]


def arrives(writer: Session, reader: Session, topic: str, *rows: list[HeaderRow]) -> None:
    writer.create_topic(topic, 1)
    writer.send(topic, [Sending(b"%d" % number, row) for number, row in enumerate(rows)])
    seen = reader.read(topic)
    kinds = writer.holds_kinds and reader.holds_kinds
    assert [_as_held(message.headers, kinds=kinds) for message in seen] == [_as_held(row, kinds=kinds) for row in rows]
    assert [message.payload for message in seen] == [b"%d" % number for number in range(len(rows))]


def _as_held(headers: Sequence[HeaderRow], *, kinds: bool) -> list[HeaderRow]:
    """With kinds, or as keys and bytes where one side knows nothing else."""
    return [(key, kind if kinds else int(Kind.RAW), value) for key, kind, value in headers]


def test_every_kind_is_exact(writer: Session, reader: Session, topic: str) -> None:
    arrives(writer, reader, topic, EVERY_KIND, [], EVERY_KIND[::-1])


def test_duplicates_stay_in_order(writer: Session, reader: Session, topic: str) -> None:
    arrives(writer, reader, topic, [("via", 2, b"ORD"), ("x", 9, b"\1"), ("via", 2, b"DEN"), ("via", 1, b"ORD")])


def test_order_is_kept(writer: Session, reader: Session, topic: str) -> None:
    arrives(writer, reader, topic, [(key, 2, key.encode()) for key in "zyxabcm"])


def test_null_and_empty_values_are_different(writer: Session, reader: Session, topic: str) -> None:
    arrives(writer, reader, topic, [("null", 1, None), ("empty", 1, b""), ("text", 2, b""), ("typed-null", 7, None)])


def test_long_values_are_exact(writer: Session, reader: Session, topic: str) -> None:
    arrives(
        writer, reader, topic, [("limit", 1, b"x" * 255)], [("over", 1, b"y" * 256)], [("far-over", 1, b"z" * 5000)]
    )


def test_values_that_are_no_utf8_are_exact(writer: Session, reader: Session, topic: str) -> None:
    arrives(writer, reader, topic, [("raw", 1, b"\xc3\x28"), ("cut", 1, b"\xf0\x9f")])


@pytest.mark.parametrize("key", ["Mixed-Case", "with space", "ключ", "k" * 255, "trace-id"])
def test_header_keys_are_exact(writer: Session, reader: Session, topic: str, key: str) -> None:
    arrives(writer, reader, f"{topic}", [(key, 2, b"v")])
