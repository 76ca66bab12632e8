"""Payloads that are text as a whole: verdicts, and the text as the value of every path with one name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..kernels.arrays import Bytes, Longs
from ..model.errors import SettingError
from ..model.kinds import Kind
from ..model.lazy_dataclass import lazy_dataclass
from ..model.run import Located
from .found import FoundValues, ValuePart, WalkedPayloads
from .layout import ABSENT, VERDICT_GOOD, VERDICT_TOMBSTONE, VERDICT_UTF8
from .numbers import locate_texts
from .paths import Path, write_path

_CONTINUES = 0xC0, 0x80
"""The bits of a byte inside a character, as mask and value."""


@lazy_dataclass(frozen=True, slots=True)
class TextValues:
    """Whole payloads as values; a row with a length below 0 has no text."""

    data: Bytes
    start: Longs
    length: Longs

    @property
    def absent(self) -> NDArray[np.bool_]:
        """See FoundValues."""
        rows: NDArray[np.bool_] = self.length < 0
        return rows

    @property
    def null(self) -> NDArray[np.bool_]:
        """See FoundValues."""
        return np.zeros(len(self.length), np.bool_)

    @property
    def readable(self) -> NDArray[np.bool_]:
        """See FoundValues."""
        return ~self.absent

    @property
    def missing(self) -> NDArray[np.bool_]:
        """See FoundValues."""
        return self.absent

    def read_as(self, type_: pa.DataType, *, whole_numbers: bool) -> tuple[Sequence[ValuePart], NDArray[np.bool_]]:
        """See FoundValues: texts are converted like headers of kind string."""
        kind = np.full(len(self.length), Kind.STRING, np.int8)
        return (ValuePart(Located(self.data, self.start, self.length, kind)),), self.null

    def locate_text(self) -> Located:
        """See FoundValues."""
        rows = np.flatnonzero(self.readable).tolist()
        texts = [json.dumps(self._bytes(row).decode(), ensure_ascii=False).encode() for row in rows]
        places = np.cumsum(self.readable) - 1
        return locate_texts(texts, places.clip(min=0), self.length)

    def _bytes(self, row: int) -> bytes:
        return self.data[self.start[row] : self.start[row] + self.length[row]].tobytes()

    def list_items(self) -> tuple[NDArray[np.int32], TextValues, NDArray[np.bool_]]:
        """See FoundValues: a text has none."""
        return np.zeros(len(self.length) + 1, np.int32), self.take(np.empty(0, np.int64)), self.null

    def list_members(self) -> tuple[NDArray[np.int32], TextValues, TextValues, NDArray[np.bool_]]:
        """See FoundValues: a text has none."""
        ends, items, rows = self.list_items()
        return ends, items, items, rows

    def walk(self, paths: tuple[Path, ...]) -> tuple[Mapping[Path, FoundValues], NDArray[np.bool_]]:
        """See FoundValues: a text has nothing inside."""
        nothing = TextValues(self.data, self.start, np.full(len(self.length), ABSENT, np.int64))
        return dict.fromkeys(paths, nothing), self.null

    def take(self, rows: NDArray[np.int64]) -> TextValues:
        """See FoundValues."""
        return TextValues(self.data, self.start[rows], self.length[rows])


def walk_texts(data: Bytes, begin: Longs, size: Longs, paths: tuple[Path, ...]) -> WalkedPayloads:
    """Return payloads of ``size`` bytes from ``begin`` on each as texts; a size below 0 is a null payload.

    Raises SettingError for a path with several names.
    """
    if deep := next((path for path in paths if len(path) > 1), None):
        raise SettingError(f"{write_path(deep)}: payloads of text have no members; write {write_path(deep[:1])}")
    verdict = np.where(size < 0, VERDICT_TOMBSTONE, VERDICT_GOOD).astype(np.uint8)
    position = np.zeros(len(size), np.int64)
    for row in np.flatnonzero(size > 0).tolist() if not _are_texts(data, begin, size) else ():
        try:
            data[begin[row] : begin[row] + size[row]].tobytes().decode()
        except UnicodeDecodeError as error:
            verdict[row], position[row] = VERDICT_UTF8, error.start
    values = TextValues(data, begin, np.where(verdict == VERDICT_GOOD, size, ABSENT))
    return WalkedPayloads(dict.fromkeys(paths, values), verdict, position)


def _are_texts(data: Bytes, begin: Longs, size: Longs) -> bool:
    """Return whether adjacent payloads are UTF-8 together and none begins inside a character: each is UTF-8 then."""
    rows = np.flatnonzero(size > 0)
    if not rows.size:
        return True
    mask, inside = _CONTINUES
    ends = begin[rows] + size[rows]
    if ((data[begin[rows]] & mask) == inside).any() or not (begin[rows][1:] == ends[:-1]).all():
        return False
    try:
        data[begin[rows[0]] : ends[-1]].tobytes().decode()
    except UnicodeDecodeError:
        return False
    return True
