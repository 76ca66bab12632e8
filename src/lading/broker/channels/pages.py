"""Pages: neighbouring messages of the log, with the facts that delivery needs (their tags and headers).

A fact is computed when it is first needed; a channel without tags and filters never decodes messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...dialects import registry
from ...model.chunk_table import BODY_END, BODY_START, COUNT
from ...model.errors import MalformedMessage
from ...model.kinds import Kind
from ...model.run import Located, Run
from ...model.scan_request import ScanRequest
from ..core.read import ReadResult, message_offsets

TEXT_KINDS: Final = (int(Kind.RAW), int(Kind.STRING))


class Page:
    """Messages of ``run`` with ``first`` <= offset < ``end``; their ``offsets`` rise.

    ``index`` is for the endpoint that encodes the page for clients: it finds the page's messages by it.
    """

    __slots__ = ("_message_bytes", "_tags", "columns", "end", "first", "index", "offsets", "run")

    def __init__(self, run: Run, first: int, end: int, offsets: NDArray[np.int64]) -> None:
        self.run = run
        self.first = first
        self.end = end
        self.offsets = offsets
        self.index: Any = None
        self.columns: dict[object, Any] = {}
        """The facts that filters have computed about the page, by filter or header."""
        self._tags: list[tuple[Located, int]] | None = None
        self._message_bytes = -1

    @property
    def message_bytes(self) -> int:
        """The average stored size of the page's messages."""
        if self._message_bytes < 0:
            chunks = self.run.chunks
            size_bytes = int((chunks[:, BODY_END] - chunks[:, BODY_START]).sum())
            self._message_bytes = -(-size_bytes // max(int(chunks[:, COUNT].sum()), 1))
        return self._message_bytes

    def load_texts(self, keys: Iterable[str]) -> None:
        """Decode the page once, so that ``texts`` can return several headers without decoding again."""
        missing = tuple(key for key in dict.fromkeys(keys) if ("texts", key) not in self.columns)
        if missing:
            parts = list(self._decode_parts(frozenset({"offset"}), missing))
            for key in missing:
                self.columns["texts", key] = self._list_texts((part.located[key], part.count) for part in parts)

    def texts(self, key: str) -> list[bytes | None]:
        """Return for each message the text of the last value of a header; None if it has none or is not text."""
        loaded: list[bytes | None] | None = self.columns.get(("texts", key))
        return list(loaded) if loaded is not None else self._list_texts(self._locate_values(key))

    @staticmethod
    def _list_texts(parts: Iterable[tuple[Located, int]]) -> list[bytes | None]:
        found: list[bytes | None] = []
        for located, count in parts:
            data, starts, lengths = located.data, located.start.tolist(), located.length.tolist()
            kinds = located.kind.tolist()
            for at in range(count):
                held = lengths[at] >= 0 and kinds[at] in TEXT_KINDS
                found.append(data[starts[at] : starts[at] + lengths[at]].tobytes() if held else None)
        return found

    def find_tags(self, header: str, tags: Sequence[str]) -> NDArray[np.int16]:
        """Return for each message 1 + the index of its tag in ``tags``, or 0; ``header`` is the same in every call."""
        if self._tags is None:
            self._tags = self._locate_values(header)
        codes = [np.zeros(count, np.int16) for _, count in self._tags]
        for number, tag in enumerate(tags, 1):
            wanted = np.frombuffer(tag.encode(), np.uint8)
            for (located, _), some in zip(self._tags, codes, strict=True):
                same = (located.length == len(wanted)) & np.isin(located.kind, TEXT_KINDS)
                rows = np.flatnonzero(same)
                if len(rows):
                    places = located.start[rows][:, None] + np.arange(len(wanted))
                    some[rows[(located.data[places] == wanted).all(axis=1)]] = number
        return np.concatenate(codes) if codes else np.zeros(len(self.offsets), np.int16)

    def with_headers(self) -> NDArray[np.bool_]:
        """Return which messages have headers, or at least a block for them."""
        dialect = registry.dialect(self.run.dialect)
        if isinstance(dialect, registry.HeaderBlockDialect):
            with suppress(MalformedMessage):
                return dialect.with_block(self.run, self.first, self.end)
        counts: list[NDArray[np.int64]] = []
        for part in self._decode_parts(frozenset({"headers"})):
            column: Any = part.columns["headers"]
            counts.append(np.diff(column.offsets.to_numpy()))
        return np.concatenate(counts) > 0 if counts else np.zeros(0, np.bool_)

    def _locate_values(self, key: str) -> list[tuple[Located, int]]:
        return [(part.located[key], part.count) for part in self._decode_parts(frozenset({"offset"}), (key,))]

    def _decode_parts(self, fields: frozenset[str], keys: tuple[str, ...] = ()) -> Iterator[Any]:
        """Return the page's messages; those that cannot be decoded have neither tag nor headers."""
        try:
            parts = list(registry.decode(self.run, ScanRequest(self.first, self.end, fields, keys)))
        except MalformedMessage:
            return iter(())
        return iter(parts if sum(part.count for part in parts) == len(self.offsets) else ())


def pages_of(reading: ReadResult) -> list[Page]:
    """Return the pages of a read."""
    dense = sum(piece.end - piece.first for piece in reading.pieces) == reading.count
    pages = []
    for run, first, end in reading.pieces:
        offsets = np.arange(first, end) if dense else message_offsets(run, first, end)
        if len(offsets):
            pages.append(Page(run, first, end, offsets))
    return pages


def size_of(pages: Iterable[Page]) -> int:
    """Return about how many bytes the messages of these pages take in the log."""
    return sum(len(page.offsets) * page.message_bytes for page in pages)


def fitting(pages: Sequence[Page], size_bytes: int) -> int:
    """Return how many of the first messages take about ``size_bytes`` together: a producer's batch may have many MB."""
    count, whole_bytes = sum(len(page.offsets) for page in pages), size_of(pages)
    return count if whole_bytes <= size_bytes else max(count * size_bytes // whole_bytes, 1)


def offsets_in(pages: Sequence[Page]) -> NDArray[np.int64]:
    """Return the offsets of the messages of all pages."""
    if len(pages) == 1:
        return pages[0].offsets
    return np.concatenate([page.offsets for page in pages]) if pages else np.empty(0, np.int64)


class PageSlice:
    """Some messages of a page for the same subscribers, in order; they are taken from the front."""

    __slots__ = ("_at", "_offsets", "page")

    def __init__(self, page: Page, offsets: NDArray[np.int64]) -> None:
        self.page = page
        self._offsets = offsets
        self._at = 0

    def __len__(self) -> int:
        return len(self._offsets) - self._at

    @property
    def rest(self) -> NDArray[np.int64]:
        """The messages that were not taken yet."""
        return self._offsets[self._at :]

    def take(self, count: int) -> NDArray[np.int64]:
        """Return the next ``count`` messages, or what is left."""
        taken = self._offsets[self._at : self._at + count]
        self._at += len(taken)
        return taken

    def drop_before(self, offset: int) -> NDArray[np.int64]:
        """Drop the messages before an offset."""
        return self.take(int(np.searchsorted(self.rest, offset)))

    def remove(self, first: int, end: int) -> NDArray[np.int64]:
        """Remove the messages with ``first`` <= offset < ``end``."""
        rest = self.rest
        low, high = np.searchsorted(rest, (first, end)).tolist()
        self._offsets, self._at = np.concatenate((rest[:low], rest[high:])), 0
        return rest[low:high]
