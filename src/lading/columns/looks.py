"""Guesses at the type of header values, by their bytes: integers, times, ids, documents."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..model.kinds import FIXED_SIZE_BYTES, FLOATS, Kind

_HEX: Final = "[0-9a-fA-F]"
_CLOCK: Final = r"[T ][0-2][0-9]:[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?"
_DAY: Final = "[0-9]{4}-[01][0-9]-[0-3][0-9]"
TEXT_LOOKS: Final[dict[str, str]] = {
    "empty": "",
    "integer": "-?(0|[1-9][0-9]{0,17})",
    "digits": "[0-9]+",
    "decimal": r"-?(0|[1-9][0-9]*)\.[0-9]+",
    "boolean": "(?i:true|false)",
    "timestamp": _DAY + _CLOCK,
    "date": _DAY,
    "uuid": f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}",
    "trace id": "[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}|[0-9a-f]{32}|[0-9a-f]{16}",
    "json": r"(?s:\{.*\}|\[.*\])",
}
"""Looks of texts, the first that fits the whole value (RE2).

Integers have no leading zeros, so that reading and writing one keeps its text; ``digits`` are those that would lose
zeros, or may not fit 64 bits. Trace ids are in the forms of W3C Trace Context and B3.
"""
SCHEMA_ID_SIZES: Final = {5: 0, 17: 1}
"""Size of a schema id in a header, by its first byte: 0 and an int32, or 1 and a GUID (Confluent)."""
_BIG_ENDIAN_SIZES: Final = (2, 4, 8)


def count_looks(key: str, kind: int, values: pa.Array[Any]) -> Counter[str]:
    """Return how many of ``values``, which are binary, of one kind and may be null, have each look.

    Nulls are not counted. Each distinct value is examined once.
    """
    held: Any = pc.drop_null(values)
    if not len(held):
        return Counter()
    if kind in FIXED_SIZE_BYTES:
        word = "boolean" if kind == Kind.BOOL else "decimal" if kind in FLOATS else "integer"
        return Counter({word: len(held)})
    counted: Any = pc.value_counts(held)
    distinct, counts = counted.field("values"), counted.field("counts")
    try:
        texts: Any = distinct.cast(pa.string())
        # control characters are valid UTF-8, but not text for people
        readable = pc.invert(pc.match_substring_regex(texts, r"[\x00-\x08\x0e-\x1f]"))
        if not pc.all(readable).as_py():
            raise pa.ArrowInvalid("control characters")
    except pa.ArrowInvalid:
        found: Counter[str] = Counter()
        for value, count in zip(distinct.to_pylist(), counts.to_pylist(), strict=True):
            found[_look_of_any(key, value)] += count
        return found
    return _count_texts(texts, counts)


def _count_texts(texts: Any, counts: Any) -> Counter[str]:
    """Return how often each look occurs among distinct texts; ``counts`` has the frequency of each text."""
    found: Counter[str] = Counter()
    for look, pattern in TEXT_LOOKS.items():
        fits = pc.match_substring_regex(texts, rf"\A(?:{pattern})\z")
        count = pc.sum(counts.filter(fits)).as_py() or 0
        if count:
            found[look] = count
            others = pc.invert(fits)
            texts, counts = texts.filter(others), counts.filter(others)
        if not len(texts):
            break
    if len(texts):
        found["text"] = pc.sum(counts).as_py()
    return found


def _look_of_any(key: str, value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return look_of_bytes(key, value)
    if any(character < " " and character not in "\t\n\r" for character in text):
        return look_of_bytes(key, value)
    return next(iter(_count_texts(pa.array([text]), pa.array([1]))))


def look_of_bytes(key: str, value: bytes) -> str:
    """Return the look of bytes that are not text. Sizes alone say little, so names and first bytes count too."""
    size, name = len(value), key.lower()
    if SCHEMA_ID_SIZES.get(size) == value[0] and (size == 17 or "schema" in name):
        return "schema id"
    if (size == 16 and "trace" in name) or (size == 8 and "span" in name):
        return "trace id"
    if size == 16 and 1 <= value[6] >> 4 <= 8 and value[8] >> 6 == 2:
        return "uuid"
    if size in _BIG_ENDIAN_SIZES and value[0] in (0, 0xFF):
        # numbers are most often small: the first byte repeats the sign
        return "big-endian int"
    return "binary"
