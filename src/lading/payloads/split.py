"""Values of one path in payloads of several schemas: the rows of each schema with their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..kernels.arrays import Bytes, Longs
from ..model.kinds import Kind
from ..model.lazy_dataclass import lazy_dataclass
from ..model.run import Located
from .found import FoundValues, ValuePart
from .layout import ABSENT
from .paths import Path

Rows = NDArray[np.int64]
Flags = NDArray[np.bool_]


@lazy_dataclass(frozen=True, slots=True)
class SplitValues:
    """Values of ``count`` rows; rows in none of the ``parts`` have no value. See FoundValues."""

    count: int
    parts: tuple[tuple[Rows, FoundValues], ...]

    def _gather_flags(self, read: Callable[[FoundValues], Flags], other: bool) -> Flags:
        flags = np.full(self.count, other, np.bool_)
        for rows, found in self.parts:
            flags[rows] = read(found)
        return flags

    @property
    def absent(self) -> Flags:
        """See FoundValues."""
        return self._gather_flags(lambda found: found.absent, True)

    @property
    def null(self) -> Flags:
        """See FoundValues."""
        return self._gather_flags(lambda found: found.null, False)

    @property
    def readable(self) -> Flags:
        """See FoundValues."""
        return self._gather_flags(lambda found: found.readable, False)

    @property
    def missing(self) -> Flags:
        """See FoundValues."""
        return self._gather_flags(lambda found: found.missing, True)

    def read_as(self, type_: pa.DataType, *, whole_numbers: bool) -> tuple[Sequence[ValuePart], Flags]:
        """See FoundValues."""
        broken = np.zeros(self.count, np.bool_)
        parts = [ValuePart(_locate_nothing(0), np.empty(0, np.int64))]
        for rows, found in self.parts:
            inside, wrong = found.read_as(type_, whole_numbers=whole_numbers)
            broken[rows] = wrong
            parts += [ValuePart(one.values, rows if one.rows is None else rows[one.rows]) for one in inside]
        return parts, broken

    def locate_text(self) -> Located:
        """See FoundValues."""
        texts = _locate_nothing(self.count)
        data: list[Bytes] = []
        begins: dict[int, int] = {}
        end = 0
        for rows, found in self.parts:
            some = found.locate_text()
            # parts of the same payloads have the same buffer
            if id(some.data) not in begins:
                begins[id(some.data)] = end
                data.append(some.data)
                end += len(some.data)
            texts.start[rows], texts.length[rows] = some.start + begins[id(some.data)], some.length
        return Located(np.concatenate([texts.data, *data]), texts.start, texts.length, texts.kind)

    def list_items(self) -> tuple[NDArray[np.int32], SplitValues, Flags]:
        """See FoundValues."""
        listed = [found.list_items() for _, found in self.parts]
        flags = self._merge_flags([flags for _, _, flags in listed])
        ends, places = self._merge_ends([ends for ends, _, _ in listed])
        return ends, _merge(ends, places, [items for _, items, _ in listed]), flags

    def list_members(self) -> tuple[NDArray[np.int32], SplitValues, SplitValues, Flags]:
        """See FoundValues."""
        listed = [found.list_members() for _, found in self.parts]
        flags = self._merge_flags([flags for _, _, _, flags in listed])
        ends, places = self._merge_ends([ends for ends, _, _, _ in listed])
        names = _merge(ends, places, [names for _, names, _, _ in listed])
        return ends, names, _merge(ends, places, [members for _, _, members, _ in listed]), flags

    def _merge_flags(self, listed: Sequence[Flags]) -> Flags:
        flags = np.zeros(self.count, np.bool_)
        for (rows, _), some in zip(self.parts, listed, strict=True):
            flags[rows] = some
        return flags

    def _merge_ends(self, listed: Sequence[NDArray[np.int32]]) -> tuple[NDArray[np.int32], list[Rows]]:
        """Return the end of each row's items, and the places of each part's items among all of them."""
        counts = np.zeros(self.count, np.int32)
        for (rows, _), ends in zip(self.parts, listed, strict=True):
            counts[rows] = np.diff(ends)
        all_ends = np.zeros(self.count + 1, np.int32)
        np.cumsum(counts, out=all_ends[1:])
        places = []
        for (rows, _), ends in zip(self.parts, listed, strict=True):
            sizes = np.diff(ends)
            shift = np.repeat(all_ends[rows].astype(np.int64) - ends[:-1], sizes)
            places.append(np.arange(int(sizes.sum())) + shift)
        return all_ends, places

    def walk(self, paths: tuple[Path, ...]) -> tuple[Mapping[Path, FoundValues], Flags]:
        """See FoundValues."""
        walked = [found.walk(paths) for _, found in self.parts]
        flags = self._merge_flags([flags for _, flags in walked])
        rows = [rows for rows, _ in self.parts]
        inside: dict[Path, FoundValues] = {
            path: SplitValues(self.count, tuple(zip(rows, (values[path] for values, _ in walked), strict=True)))
            for path in paths
        }
        return inside, flags

    def take(self, rows: Rows) -> SplitValues:
        """See FoundValues."""
        parts = []
        for held, found in self.parts:
            places = np.full(self.count, -1, np.int64)
            places[held] = np.arange(len(held))
            chosen = np.flatnonzero(places[rows] >= 0)
            parts.append((chosen, found.take(places[rows][chosen])))
        return SplitValues(len(rows), tuple(parts))


def _merge(ends: NDArray[np.int32], places: Sequence[Rows], items: Sequence[FoundValues]) -> SplitValues:
    return SplitValues(int(ends[-1]), tuple(zip(places, items, strict=True)))


def _locate_nothing(rows: int) -> Located:
    start: Longs = np.zeros(rows, np.int64)
    return Located(np.empty(0, np.uint8), start, np.full(rows, ABSENT, np.int64), np.full(rows, Kind.STRING, np.int8))
