"""The members of JSON payloads: their paths, frequencies, types and examples, and columns for them.

Payloads are sampled, and the statistics are bounded: PAYLOADS_MAX, BYTES_MAX, DEPTH_MAX and PATHS_MAX.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..kernels.entries import view_binary
from ..model.kinds import Kind
from ..model.printable import escape_unseen
from ..payloads.layout import (
    JSON_ESCAPED,
    JSON_FALSE,
    JSON_INTEGER,
    JSON_NESTED,
    JSON_NOTHING,
    JSON_PLAIN,
    JSON_REAL,
    JSON_TRUE,
    JSON_WIDE,
    NULL,
)
from ..payloads.paths import Path, write_path
from ..payloads.walk import JsonValues, walk_json_spans
from .contract import Encoding, PayloadColumn, parse_payload_type, write_field_name
from .looks import count_looks
from .members import is_last_of_name
from .typed import convert_column

PAYLOADS_MAX: Final = 20_000
BYTES_MAX: Final = 64 << 20
"""Limit in bytes of the first payloads of a topic that are read; PAYLOADS_MAX limits their number."""
DEPTH_MAX: Final = 5
"""Depth of nested objects and arrays that are read; deeper ones are left as JSON text."""
PATHS_MAX: Final = 200
"""Further paths are counted together, so that payloads with made-up names cannot fill the memory."""
MAP_NAMES_MIN: Final = 50
MAP_SHARE_MAX: Final = 0.5
"""An object with more names than the first, which on average have less than this share of the objects, is a map."""
EXAMPLES_MAX: Final = 3
EXAMPLE_CHARACTERS: Final = 40
_DECIMALS_MAX: Final = 2
"""Numbers with at most this many decimals, as sums of money have, become decimals and not doubles."""
_BIGINT_DIGITS: Final = 19
_INT64_CHARACTERS: Final = 20
"""Digits and sign of the longest number of 64 bits."""
"""Digits of the largest number of 64 bits; all numbers with fewer digits fit as well."""
_PRECISIONS: Final = (10, 18, 38)
_KIND_WORDS: Final = {
    JSON_NOTHING: "null", JSON_PLAIN: "string", JSON_WIDE: "string", JSON_ESCAPED: "string", JSON_INTEGER: "number",
    JSON_REAL: "number", JSON_TRUE: "boolean", JSON_FALSE: "boolean", JSON_NESTED: "nested",
}  # fmt: skip
_FIELD_NAME: Final = re.compile(r"[^,<>()]+")
"""A name that a struct's type can be written with."""
_TIMES: Final = ("timestamp", "date")


@dataclass(slots=True)
class MemberStatistics:
    """Statistics of the values of one path, or of all items of its arrays."""

    present: int = 0
    """Objects that have the member, also as null; of items, how many there are."""
    nulls: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """Number of values by JSON's word for their type: string, number, boolean, object, array."""
    looks: Counter[str] = field(default_factory=Counter)
    whole_digits: int = 0
    decimals: int = 0
    has_exponents: bool = False
    exceeds_bigint: bool = False
    examples: list[str] = field(default_factory=list)
    members: dict[str, MemberStatistics] = field(default_factory=dict)
    items: MemberStatistics | None = None
    """The statistics of an array's items, or of the values of an object that is a map."""
    is_map: bool = False

    def propose(self, *, nested: bool = False) -> str:
        """Return the word for a column type that holds all of these values; JSON text inside others is a string."""
        text = "string" if nested else "json"
        match frozenset(self.kinds):
            case kinds if not kinds:
                return "string"
            case kinds if kinds == {"string"}:
                only = next(iter(self.looks)) if len(self.looks) == 1 else ""
                return only if only in _TIMES else "string"
            case kinds if kinds == {"number"}:
                return self._propose_number()
            case kinds if kinds == {"boolean"}:
                return "boolean"
            case kinds if kinds == {"array"}:
                return f"array<{'string' if self.items is None else self.items.propose(nested=True)}>"
            case kinds if kinds == {"object"} and self.is_map:
                return f"map<string,{'string' if self.items is None else self.items.propose(nested=True)}>"
            case kinds if kinds == {"object"} and self.members and all(map(_FIELD_NAME.fullmatch, self.members)):
                members = (f"{write_field_name(name)}:{one.propose(nested=True)}" for name, one in self.members.items())
                return f"struct<{','.join(members)}>"
            case kinds:
                return text if kinds & {"object", "array"} else "string"

    def merge(self, other: MemberStatistics) -> None:
        """Add the counts of ``other``."""
        self.present += other.present
        self.nulls += other.nulls
        self.kinds += other.kinds
        self.looks += other.looks
        self.whole_digits = max(self.whole_digits, other.whole_digits)
        self.decimals = max(self.decimals, other.decimals)
        self.has_exponents |= other.has_exponents
        self.exceeds_bigint |= other.exceeds_bigint
        self.examples = (self.examples + other.examples)[:EXAMPLES_MAX]
        self.is_map |= other.is_map
        for name, member in other.members.items():
            self.members.setdefault(name, MemberStatistics()).merge(member)
        if other.items is not None:
            self.items = self.items or MemberStatistics()
            self.items.merge(other.items)

    def _propose_number(self) -> str:
        if self.has_exponents or self.decimals > _DECIMALS_MAX:
            return "double"
        if not self.decimals:
            fits = self.whole_digits <= _PRECISIONS[-1]
            return ("decimal(38,0)" if fits else "string") if self.exceeds_bigint else "bigint"
        digits = self.whole_digits + _DECIMALS_MAX
        fitting = next((precision for precision in _PRECISIONS if digits <= precision), None)
        return "double" if fitting is None else f"decimal({fitting},{_DECIMALS_MAX})"


class PayloadStatistics:
    """Statistics of the payloads that were added; ``add`` takes batches until the limits are reached."""

    def __init__(self) -> None:
        self.messages = 0
        """Messages whose payload was looked at."""
        self.nulls = 0
        """Messages without a payload: tombstones."""
        self.objects = 0
        """Messages whose payload is a JSON object."""
        self.size_bytes = 0
        self.is_cut = False
        """Whether payloads were left out because of the limits."""
        self.other_members = 0
        """The number of values whose paths are not kept, as there are more than PATHS_MAX."""
        self.first_malformed = ""
        self.root = MemberStatistics()
        self._paths = 0

    @property
    def malformed(self) -> int:
        """Payloads that are not JSON objects, nor null."""
        return self.messages - self.nulls - self.objects

    def add(self, batch: pa.RecordBatch) -> None:
        """Count in a batch with the columns partition, offset and payload, or the rows of it that the limits leave."""
        ends, data = view_binary(batch.column("payload"))
        begin, size = ends[:-1].astype(np.int64), np.diff(ends).astype(np.int64)
        room = BYTES_MAX - self.size_bytes
        rows = min(len(size), PAYLOADS_MAX - self.messages, int(np.searchsorted(np.cumsum(size), room, "right")))
        self.is_cut |= rows < len(size)
        if not rows:
            return
        self.size_bytes += int(size[:rows].sum())
        payloads: Any = batch.column("payload").slice(0, rows)
        begin, size = begin[:rows], size[:rows]
        size[payloads.is_null().to_numpy(zero_copy_only=False)] = NULL
        walked = walk_json_spans(data, begin, size, (("",),))
        bad = np.flatnonzero(walked.malformed)
        if bad.size and not self.first_malformed:
            row = int(bad[0])
            partition, offset = (batch.column(name)[row].as_py() for name in ("partition", "offset"))
            self.first_malformed = f"the first, in partition {partition} at offset {offset}, {walked.describe(row)}"
        good = np.flatnonzero(walked.good)
        self.messages += rows
        self.nulls += payloads.null_count
        self.objects += len(good)
        kinds = np.full(len(good), JSON_NESTED, np.int8)
        self._count_members(self.root, JsonValues(data, begin[good], size[good], kinds), 1)

    def rows(self) -> list[dict[str, Any]]:
        """Return a JSON-ready row for each path, in order of appearance; objects are their members.

        ``share`` is the percentage of payloads that have the member, of those that are JSON objects.
        """
        return [
            {
                "path": write_path(path),
                "type": one.propose(),
                "kinds": ", ".join(kind for kind, _ in one.kinds.most_common()) or "null",
                "kind_counts": dict(one.kinds.most_common()),
                "messages": one.present,
                "share": 100.0 * one.present / self.objects,
                "nulls": one.nulls,
                "required": one.present == self.objects and not one.nulls,
                "examples": ", ".join(map(_shorten_example, one.examples)),
                "example_values": one.examples,
            }
            for path, one in self.leaves()
        ]

    def leaves(self) -> Iterator[tuple[Path, MemberStatistics]]:
        """Yield each path to values that are not objects with members of their own, and its statistics."""
        todo: list[tuple[Path, MemberStatistics]] = [((), self.root)]
        while todo:
            path, one = todo.pop()
            if not path or (one.members and not one.is_map and set(one.kinds) == {"object"}):
                todo += reversed([((*path, name), member) for name, member in one.members.items()])
            else:
                yield path, one

    def propose_columns(self, taken: set[str]) -> list[PayloadColumn]:
        """Return a column for each of ``rows``; its name in lower case is added to ``taken``, and not used twice."""
        columns = []
        for path, one in self.leaves():
            name = _choose_name(path, taken)
            type_, is_json = parse_payload_type(one.propose())
            required = one.present == self.objects and not one.nulls
            columns.append(PayloadColumn(name, path, type_, required, None, is_json))
        return columns

    def describe(self) -> list[str]:
        """Return a sentence on payloads that are not JSON objects, if there are any, and one on payloads that were left
        out.
        """
        sentences = []
        if self.malformed:
            verb = "is not a JSON object" if self.malformed == 1 else "are not JSON objects"
            count = self.messages - self.nulls
            word = "payload" if count == 1 else "payloads"
            sentences.append(f"{self.malformed:,} of {count:,} {word} {verb}: {self.first_malformed}")
        if self.is_cut and self.objects:
            sentences.append(f"members of the payload are those of the first {self.messages:,} messages")
        if self.other_members:
            sentences.append(f"{self.other_members:,} values of members after the first {PATHS_MAX} paths are left out")
        return sentences

    def document(self) -> dict[str, Any]:
        """Return everything as JSON."""
        return {
            "messages": self.messages, "nulls": self.nulls, "objects": self.objects, "malformed": self.malformed,
            "first_malformed": self.first_malformed or None, "complete": not self.is_cut,
            "other_members": self.other_members, "members": self.rows(),
            "limits": {"messages": PAYLOADS_MAX, "bytes": BYTES_MAX, "depth": DEPTH_MAX, "paths": PATHS_MAX},
        }  # fmt: skip

    def _count(self, one: MemberStatistics, values: JsonValues, depth: int) -> None:
        """Count present values, or nulls."""
        one.present += len(values.length)
        one.nulls += int(values.null.sum())
        words = np.unique(values.kind[~values.null], return_counts=True)
        counts: Counter[str] = Counter()
        for kind, count in zip(*(part.tolist() for part in words), strict=True):
            counts[_KIND_WORDS[kind]] += count
        texts = values.kind
        if counts["string"]:
            strings = _to_texts(values.take(np.flatnonzero((texts >= JSON_PLAIN) & (texts <= JSON_ESCAPED))))
            one.looks.update(count_looks("", Kind.STRING, strings))
            _add_examples(one, strings)
        if counts["number"]:
            _count_numbers(one, _to_texts(values.take(np.flatnonzero((texts == JSON_INTEGER) | (texts == JSON_REAL)))))
        if counts["boolean"]:
            _add_examples(one, _to_texts(values.take(np.flatnonzero((texts == JSON_TRUE) | (texts == JSON_FALSE)))))
        if counts.pop("nested", 0):
            nested = values.take(np.flatnonzero(texts == JSON_NESTED))
            are_objects = nested.data[nested.start] == ord("{")
            objects, arrays = np.flatnonzero(are_objects), np.flatnonzero(~are_objects)
            counts.update({word: len(rows) for word, rows in (("object", objects), ("array", arrays)) if len(rows)})
            one.kinds.update(counts)
            if len(objects) and depth < DEPTH_MAX:
                self._count_members(one, nested.take(objects), depth + 1)
            if len(arrays) and depth < DEPTH_MAX:
                one.items = one.items or MemberStatistics()
                self._count(one.items, nested.take(arrays).list_items()[1], depth + 1)
            if not (one.members or one.items):
                _add_examples(one, _to_texts(nested))
        else:
            one.kinds.update({word: count for word, count in counts.items() if count})

    def _count_members(self, one: MemberStatistics, objects: JsonValues, depth: int) -> None:
        """Count the members of objects; ``depth`` is that of their values."""
        ends, names, members, _ = objects.list_members()
        keys, _ = convert_column(names.locate(whole_numbers=False)[0], pa.string(), Encoding.AUTO)
        parents = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        encoded: Any = keys.dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        codes = np.where(is_last_of_name(parents, keys), codes, -1)
        order = np.argsort(codes, kind="stable")
        words: list[str] = encoded.dictionary.to_pylist()
        bounds = np.searchsorted(codes[order], np.arange(len(words) + 1))
        if one is not self.root and not one.is_map:
            known = len(one.members.keys() | set(words))
            seen = sum(member.present for member in one.members.values()) + len(order) - int(bounds[0])
            if known > MAP_NAMES_MIN and seen < MAP_SHARE_MAX * known * one.kinds["object"]:
                self._make_map(one)
        if one.is_map:
            one.items = one.items or MemberStatistics()
            self._count(one.items, members.take(order[bounds[0] :]), depth)
            return
        for code, word in enumerate(words):
            rows = order[bounds[code] : bounds[code + 1]]
            if word not in one.members:
                if self._paths >= PATHS_MAX:
                    self.other_members += len(rows)
                    continue
                self._paths += 1
                one.members[word] = MemberStatistics()
            self._count(one.members[word], members.take(rows), depth)

    def _make_map(self, one: MemberStatistics) -> None:
        one.is_map, one.items = True, one.items or MemberStatistics()
        for member in one.members.values():
            one.items.merge(member)
        self._paths -= len(one.members)
        one.members.clear()


def _to_texts(values: JsonValues) -> pa.Array[Any]:
    """Return values as binary texts, strings without their quotes; null for one that is not a text of Unicode."""
    located, _ = values.locate(whole_numbers=False)
    texts, _ = convert_column(located, pa.binary(), Encoding.AUTO)
    return texts


def _count_numbers(one: MemberStatistics, literals: Any) -> None:
    texts: Any = pc.unique(literals).cast(pa.string())
    exponents: Any = pc.match_substring(pc.utf8_lower(texts), "e")
    one.has_exponents |= bool(pc.any(exponents).as_py())
    plain = texts.filter(pc.invert(exponents))
    if len(plain):
        whole: Any = pc.replace_substring_regex(plain, r"^-?([0-9]+).*$", r"\1")
        decimals: Any = pc.replace_substring_regex(plain, r"^[^.]*\.?", "")
        one.whole_digits = max(one.whole_digits, pc.max(pc.utf8_length(whole)).as_py())
        one.decimals = max(one.decimals, pc.max(pc.utf8_length(decimals)).as_py())
        # shorter numbers fit 64 bits
        long = plain.filter(pc.match_substring_regex(plain, f"[0-9]{{{_BIGINT_DIGITS}}}"))
        # the literals are valid: without decimals it is an integer
        one.exceeds_bigint |= any(
            len(whole := text.partition(".")[0]) > _INT64_CHARACTERS or not -(1 << 63) <= int(whole) < 1 << 63
            for text in long.to_pylist()
        )
    _add_examples(one, literals)


def _add_examples(one: MemberStatistics, values: Any) -> None:
    if len(one.examples) >= EXAMPLES_MAX:
        return
    distinct: Any = pc.unique(values.slice(0, 1_000))
    for value in distinct.slice(0, EXAMPLES_MAX + 1).to_pylist():
        text = (value or b"").decode(errors="replace")[: 5 * EXAMPLE_CHARACTERS]
        if text and text not in one.examples and len(one.examples) < EXAMPLES_MAX:
            one.examples.append(text)


def _shorten_example(text: str) -> str:
    shown = escape_unseen(text)
    return shown if len(shown) <= EXAMPLE_CHARACTERS else shown[: EXAMPLE_CHARACTERS - 1] + "…"


def _choose_name(path: Path, taken: set[str]) -> str:
    """Return the first name that is not ``taken``: the last of the path, all of its names, or these after
    ``payload_``.
    """
    name = path[-1] or "member"
    if name.lower() in taken:
        name = "_".join(path)
    while name.lower() in taken:
        name = f"payload_{name}"
    taken.add(name.lower())
    return name
