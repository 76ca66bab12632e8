"""The named checks: for each of them the messages that have to come back as they were sent.

A header is (key, kind, value). ``PLAIN`` stands for the kind by which a protocol's own clients send bytes: raw, or
text if its values can be nothing else. A key that begins with a backslash is written as ``model.names`` says.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from ..model.kinds import Kind

PLAIN: Final = 0
HeaderRow = tuple[str, int, bytes | None]


class ProbeMessage(NamedTuple):
    """A message to send; the messages of a check have different payloads."""

    headers: Sequence[HeaderRow] = ()
    key: bytes | None = None
    payload: bytes | None = b"p"


class Check(NamedTuple):
    """A check: its name, the property of headers that it is about, and its messages, in order."""

    name: str
    about: str
    messages: Sequence[ProbeMessage]


def _one_message(*headers: tuple[str, bytes | None]) -> tuple[ProbeMessage]:
    return (ProbeMessage([(key, PLAIN, value) for key, value in headers]),)


def _list_kinds() -> list[Check]:
    """Return a check for each of the 15 kinds, with the lowest and the highest value if they are numbers."""
    floats = {Kind.FLOAT32: "<f", Kind.FLOAT64: "<d"}
    values: dict[Kind, list[bytes]] = {
        Kind.RAW: [b"\x00\xff"], Kind.STRING: ["é".encode()], Kind.BOOL: [b"\x00", b"\x01"],
    }  # fmt: skip
    for kind, size_bytes in zip(
        (Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64, Kind.INT128), (1, 2, 4, 8, 16), strict=True
    ):
        low = -(1 << 8 * size_bytes - 1)
        values[kind] = [one.to_bytes(size_bytes, "little", signed=True) for one in (low, -1, -low - 1)]
    for kind, size_bytes in zip(
        (Kind.UINT8, Kind.UINT16, Kind.UINT32, Kind.UINT64, Kind.UINT128), (1, 2, 4, 8, 16), strict=True
    ):
        values[kind] = [one.to_bytes(size_bytes, "little") for one in (0, (1 << 8 * size_bytes) - 1)]
    for kind, form in floats.items():
        values[kind] = [struct.pack(form, one) for one in (-0.0, 1.5, float("inf"), float("nan"))]
    return [
        Check(
            f"kind {kind.word}",
            "kinds",
            [ProbeMessage([(f"k{number}", int(kind), value) for number, value in enumerate(values[kind])])],
        )
        for kind in Kind
    ]


_MIXED: Final = tuple(
    ProbeMessage([("n", PLAIN, b"%d" % number), ("m", PLAIN, b"m")][: number % 3], payload=b"m%d" % number)
    for number in range(300)
)
_ALL_BYTES: Final = bytes(range(256))

CHECKS: Final[Sequence[Check]] = (
    Check("no headers", "order", (ProbeMessage(),)),
    Check("one header", "order", _one_message(("a", b"1"))),
    Check("two headers", "order", _one_message(("a", b"1"), ("b", b"2"))),
    Check("two headers, later letter first", "order", _one_message(("b", b"1"), ("a", b"2"))),
    Check("ten headers", "order", _one_message(*((f"h{n * 7 % 10}", b"%d" % n) for n in range(10)))),
    Check("100 headers", "order", _one_message(*((f"h{n * 7 % 100}", b"%d" % n) for n in range(100)))),
    Check("1,000 headers", "order", _one_message(*((f"h{n * 7 % 1000}", b"%d" % n) for n in range(1000)))),
    Check("a key twice, other values", "duplicates", _one_message(("a", b"1"), ("a", b"2"))),
    Check("a key twice, equal values", "duplicates", _one_message(("a", b"1"), ("a", b"1"))),
    Check("a key twice, another between", "duplicates", _one_message(("a", b"1"), ("b", b"2"), ("a", b"3"))),
    Check(
        "a key three times, the last first by value", "duplicates", _one_message(("a", b"3"), ("a", b"1"), ("a", b"2"))
    ),
    Check("a key 100 times", "duplicates", _one_message(*(("a", b"%d" % n) for n in range(100)))),
    Check("a null value", "null", _one_message(("a", None))),
    Check("a null value, then a value of the key", "null", _one_message(("a", None), ("a", b"1"))),
    Check("a value, then null of the key", "null", _one_message(("a", b"1"), ("a", None))),
    Check("null twice", "null", _one_message(("a", None), ("a", None))),
    Check("null among values", "null", _one_message(("a", b"1"), ("b", None), ("c", b"3"))),
    Check("the text null", "null", _one_message(("a", b"null"))),
    Check("an empty value", "empty", _one_message(("a", b""))),
    Check("an empty value and null", "empty", _one_message(("a", b""), ("b", None))),
    Check("an empty value among values", "empty", _one_message(("a", b"1"), ("b", b""), ("c", b"3"))),
    Check("an empty key", "empty", _one_message(("", b"1"))),
    Check("an empty key and value", "empty", _one_message(("", b""))),
    Check("an empty key twice", "empty", _one_message(("", b"1"), ("", b"2"))),
    Check("a value that is not UTF-8", "bytes", _one_message(("a", b"\xff\xfe"))),
    Check("a value of all bytes", "bytes", _one_message(("a", _ALL_BYTES))),
    Check("a surrogate in UTF-8", "bytes", _one_message(("a", b"\xed\xa0\x80"))),
    Check("a value with line breaks and tabs", "bytes", _one_message(("a", b"x\r\n\ty"))),
    Check("a value in UTF-8", "bytes", _one_message(("a", "é 漢字 🙂".encode()))),
    Check("a value that is JSON", "bytes", _one_message(("a", json.dumps({"b": [1, None]}).encode()))),
    Check("a value that is a number", "bytes", _one_message(("a", b"0017"), ("b", b"1.50"), ("c", b"true"))),
    Check("a key in UTF-8", "names", _one_message(("clé 漢字 🙂", b"1"))),
    Check("two forms of one letter", "names", _one_message(("\u00e9", b"1"), ("e\u0301", b"2"))),
    Check("keys that differ by case", "names", _one_message(("Content-Type", b"1"), ("content-type", b"2"))),
    Check("keys with spaces at the ends", "names", _one_message((" a", b"1"), ("a ", b"2"), ("a", b"3"))),
    Check(
        "keys with signs",
        "names",
        _one_message(('"', b"1"), ("\\\\", b"2"), ("a=b", b"3"), ("a,b", b"4"), ("{}", b"5")),
    ),
    Check("a name that is not UTF-8", "names", _one_message(("\\xff00fe", b"1"))),
    Check("a key with a zero byte", "names", _one_message(("a\x00b", b"1"))),
    Check("a key of 255 bytes", "names", _one_message(("k" * 255, b"1"))),
    Check("a value of 255 and of 256 bytes", "sizes", _one_message(("a", b"x" * 255), ("b", b"y" * 256))),
    Check("a value of 32,767 and of 32,768 bytes", "sizes", _one_message(("a", b"x" * 32_767), ("b", b"y" * 32_768))),
    Check("a value of 100,000 bytes", "sizes", _one_message(("a", b"x" * 100_000))),
    Check("1,000 headers of 100 bytes", "sizes", _one_message(*((f"h{n}", b"%0100d" % n) for n in range(1000)))),
    Check("300 messages, each with headers of its own", "batches", _MIXED),
    Check("a key", "message", (ProbeMessage([("a", PLAIN, b"1")], b"k"),)),
    Check("an empty key of the message", "message", (ProbeMessage([("a", PLAIN, b"1")], b""),)),
    Check("a key that is not UTF-8", "message", (ProbeMessage([("a", PLAIN, b"1")], b"\xff\x00"),)),
    Check("an empty payload", "message", (ProbeMessage([("a", PLAIN, b"1")], payload=b""),)),
    Check("a null payload with headers", "message", (ProbeMessage([("a", PLAIN, b"1")], b"k", None),)),
    *_list_kinds(),
)
"""All 64 checks, in the order in which they are printed."""
