"""The header table: which keys the messages have, of which kinds, how often, how large, with examples."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..model.errors import CorruptError
from ..model.kinds import Kind, decode_value
from ..model.printable import escape_unseen
from .contract import FIELD_TYPES, write_column_name
from .distinct import DistinctCount
from .field_names import choose_column_name
from .locate import Entries
from .typed import convert_column

KEYS_MAX: Final = 1000
"""More keys than these are counted together, so that a topic with made-up keys cannot fill the memory."""

SIZES_MAX: Final = 4
EXAMPLES_MAX: Final = 3
EXAMPLE_BYTES_MAX: Final = 200
_EXAMPLE_CHARACTERS: Final = 40
_WHOLE_TYPES: Final = ("tinyint", "smallint", "int", "bigint", "decimal(38,0)")
_TYPE_OF_KIND: Final[dict[int, str]] = {
    Kind.BOOL: "boolean",
    Kind.INT8: "tinyint",
    Kind.INT16: "smallint",
    Kind.INT32: "int",
    Kind.INT64: "bigint",
    Kind.INT128: "decimal(38,0)",
    Kind.UINT8: "smallint",
    Kind.UINT16: "int",
    Kind.UINT32: "bigint",
    Kind.UINT64: "decimal(38,0)",
    Kind.UINT128: "decimal(38,0)",
    Kind.FLOAT32: "float",
    Kind.FLOAT64: "double",
}
"""The narrowest column type that holds every value of a kind; all others are texts or bytes."""


@dataclass(slots=True)
class KeyStatistics:
    """Statistics of one header key. ``kinds`` counts values that are not null, by kind code."""

    key: str
    messages: int = 0
    occurrences: int = 0
    kinds: Counter[int] = field(default_factory=Counter)
    nulls: int = 0
    empty: int = 0
    duplicates: int = 0
    """Messages that hold the key more than once."""
    size_bytes: int = 0
    value_sizes: set[int] = field(default_factory=set)
    """Sizes of values in bytes, while they are few: SIZES_MAX of them stand for many."""
    not_text: int = 0
    """Values without a number kind that are not UTF-8."""
    distinct: DistinctCount = field(default_factory=DistinctCount)
    examples: list[tuple[int, bytes]] = field(default_factory=list)

    def merge(self, other: KeyStatistics) -> None:
        """Add the statistics of ``other`` for the same key."""
        self.messages += other.messages
        self.occurrences += other.occurrences
        self.kinds += other.kinds
        self.nulls += other.nulls
        self.empty += other.empty
        self.duplicates += other.duplicates
        self.size_bytes += other.size_bytes
        self._note_sizes(other.value_sizes)
        self.not_text += other.not_text
        self.distinct.merge(other.distinct)
        self.examples = list(dict.fromkeys(self.examples + other.examples))[:EXAMPLES_MAX]

    def _note_sizes(self, sizes: Iterable[int]) -> None:
        if len(self.value_sizes) < SIZES_MAX:
            self.value_sizes.update(islice(sizes, SIZES_MAX))

    @property
    def type(self) -> str:
        """The column type that can have all its values: binary if some are not text, string if their kinds differ."""
        types = {_TYPE_OF_KIND.get(kind, "string") for kind in self.kinds}
        if self.not_text:
            return "binary"
        if len(types) == 1:
            return types.pop()
        if types and types <= set(_WHOLE_TYPES):
            return max(types, key=_WHOLE_TYPES.index)
        if types and types <= {*_WHOLE_TYPES, "float", "double"}:
            return "double"
        return "string"


class HeaderStatistics:
    """The header table over any number of batches; ``messages`` counts them, ``keys`` is in order of appearance."""

    def __init__(self, wanted: Collection[str] = ()) -> None:
        """``wanted`` are keys that are counted however many others there are."""
        self.messages = 0
        self.keys: dict[str, KeyStatistics] = {}
        self.other_occurrences = 0
        """Headers of keys that have no place among KEYS_MAX. Keys of one message make room for those of several, so
        that one message with thousands of headers hides no others."""
        self._wanted = frozenset(wanted)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the headers of a batch that has a ``headers`` column."""
        self.messages += batch.num_rows
        entries = Entries.of(batch.column("headers"))
        parents = np.repeat(np.arange(entries.rows), np.diff(entries.lists))
        encoded: Any = entries.key_array.dictionary_encode()
        codes: NDArray[np.int32] = encoded.indices.to_numpy(zero_copy_only=False)
        order = np.argsort(codes, kind="stable")
        names: list[str] = encoded.dictionary.to_pylist()
        ends = np.searchsorted(codes[order], np.arange(len(names) + 1))
        held_by = [order[ends[code] : ends[code + 1]] for code in range(len(names))]
        admitted = self._admit(names, lambda code: len(np.unique(parents[held_by[code]])))
        for name, held in zip(names, held_by, strict=True):
            if name in admitted:
                of_key = self.keys.setdefault(name, KeyStatistics(name))
                _count(of_key, entries, held, parents[held])
            else:
                self.other_occurrences += len(held)

    def merge(self, other: HeaderStatistics) -> None:
        """Add the counts of ``other``."""
        self.messages += other.messages
        self.other_occurrences += other.other_occurrences
        added = list(other.keys.values())
        admitted = self._admit([one.key for one in added], lambda index: added[index].messages)
        for statistics in added:
            if statistics.key in admitted:
                self.keys.setdefault(statistics.key, KeyStatistics(statistics.key)).merge(statistics)
            else:
                self.other_occurrences += statistics.occurrences

    def _admit(self, names: Sequence[str], count_messages: Callable[[int], int]) -> set[str]:
        """Return which of ``names`` are counted: those that are already, and new ones as far as there is room.

        ``count_messages`` returns in how many messages the name of an index is.
        """
        new = [index for index, name in enumerate(names) if name not in self.keys]
        if len(new) <= KEYS_MAX - len(self.keys):
            return set(names)
        messages = {index: count_messages(index) for index in new}
        wanted = {names[index] for index in new} & self._wanted
        usual_count = sum(messages[index] > 1 for index in new if names[index] not in wanted)
        # a key of these messages too keeps its place, and what was counted of it
        here = set(names)
        once = [
            name for name, of_key in self.keys.items()
            if of_key.messages == 1 and name not in self._wanted and name not in here
        ]  # fmt: skip
        lacking = max(usual_count + len(wanted) + len(self.keys) - KEYS_MAX, 0)
        for name in once[max(len(once) - lacking, 0) :]:
            self.other_occurrences += self.keys.pop(name).occurrences
        others = sorted((index for index in new if names[index] not in wanted), key=lambda index: -messages[index])
        room = max(KEYS_MAX - len(self.keys) - len(wanted), 0)
        return wanted | {name for name in names if name in self.keys} | {names[index] for index in others[:room]}

    def rows(self) -> list[dict[str, Any]]:
        """Return a JSON-ready row per key, the most frequent first; ``share`` is the percentage of messages with it.

        ``kinds`` and ``examples`` are texts for tables, ``kind_counts`` and ``example_values`` the same as data;
        ``distinct`` is an estimate if ``distinct_exact`` is false; ``type`` is the column type to declare.
        """
        ordered = sorted(self.keys.values(), key=lambda one: -one.messages)
        return [self._make_row(statistics) for statistics in ordered]

    def suggest_columns(self) -> list[str]:
        """Return every key as a column for ``parse_columns``, in order of appearance."""
        columns: list[str] = []
        for key, name in self.name_columns().items():
            origin = "" if name == key else f" from {write_column_name(key)}"
            columns.append(f"{write_column_name(name)} {self.keys[key].type}{origin}")
        return columns

    def name_columns(self) -> dict[str, str]:
        """Return the name of each key's column: all differ in more than case, and none is a field's name."""
        taken = {name.lower() for name in FIELD_TYPES}
        return {key: choose_column_name(key, taken) for key in self.keys}

    def _make_row(self, one: KeyStatistics) -> dict[str, Any]:
        kinds = {_kind_word(kind): count for kind, count in one.kinds.most_common()}
        values = [_to_json_value(kind, data) for kind, data in one.examples]
        return {
            "key": one.key,
            "type": one.type,
            "kinds": ", ".join(kinds) or "null",
            "kind_counts": kinds,
            "messages": one.messages,
            "share": 100.0 * one.messages / self.messages if self.messages else 0.0,
            "nulls": one.nulls,
            "empty": one.empty,
            "duplicates": one.duplicates,
            # the estimate may be above the number of values
            "distinct": min(one.distinct.count, one.occurrences - one.nulls),
            "distinct_exact": one.distinct.exact,
            "size_bytes": one.size_bytes,
            "examples": ", ".join(map(_format_example, values)),
            "example_values": values,
        }


def _count(one: KeyStatistics, entries: Entries, held: NDArray[Any], parents: NDArray[Any]) -> None:
    located = entries.locate(held.astype(np.int64))
    repeated = np.flatnonzero(parents[1:] == parents[:-1])
    one.occurrences += len(held)
    one.messages += len(held) - len(repeated)
    one.duplicates += len(np.unique(parents[repeated]))
    present = located.length >= 0
    one.nulls += int((~present).sum())
    one.empty += int((located.length == 0).sum())
    one.size_bytes += int(located.length[present].sum())
    one._note_sizes(np.unique(located.length[present]).tolist())
    values = entries.value_array.take(pa.array(held))
    codes, counts = np.unique(located.kind[present], return_counts=True)
    for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
        one.kinds[code] += count
        of_kind = present & (located.kind == code)
        distinct: list[Any] = pc.unique(values.filter(pa.array(of_kind))).to_pylist()
        one.distinct.add(distinct, seed=code & 0xFF)
        _add_examples(one, code, distinct)
    if not one.kinds.keys() <= _TYPE_OF_KIND.keys():
        unreadable = convert_column(located, pa.string())[1]
        one.not_text += unreadable.true_count if unreadable is not None else 0


def _add_examples(one: KeyStatistics, kind: int, values: list[bytes]) -> None:
    for value in values[: EXAMPLES_MAX + 1]:
        example = kind, value[:EXAMPLE_BYTES_MAX]
        if len(one.examples) < EXAMPLES_MAX and value and example not in one.examples:
            one.examples.append(example)


def _kind_word(kind: int) -> str:
    return Kind(kind).word if kind in set(Kind) else f"kind {kind}"


def _to_json_value(kind: int, data: bytes) -> Any:
    """Return the value in a form for JSON: text and numbers unchanged, other bytes as 0x and hexadecimal digits."""
    try:
        value = decode_value(kind, data)
    except CorruptError:
        value = data
    if isinstance(value, bytes):
        try:
            # a long text may have been cut inside a character
            value = value.decode(errors="ignore" if len(value) == EXAMPLE_BYTES_MAX else "strict")
        except UnicodeDecodeError:
            return f"0x{data.hex()}"
        return value if value.isprintable() else f"0x{data.hex()}"
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _format_example(value: Any) -> str:
    text = escape_unseen(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _EXAMPLE_CHARACTERS else text[: _EXAMPLE_CHARACTERS - 1] + "…"
