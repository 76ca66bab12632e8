"""The warning about declared headers that no message of a run had, since a mistyped name otherwise only gives nulls."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ..columns.contract import parse_columns
from ..columns.seen_headers import SeenHeaders, unseen_sentence
from ..model.errors import UnseenHeaderWarning
from ..transports.interface import TopicMeta, Transport
from .read_bounds import ReadBounds
from .reading import PartitionReader, Selection

if TYPE_CHECKING:
    import pyarrow as pa

LOOKED_AT: Final = 10_000
"""Number of messages searched for header names once a header seems to be missing."""
_FETCH_BYTES: Final = 1 << 20


def look_at_headers(seen: SeenHeaders, transport: Transport, selection: Selection, spans: Iterable[ReadBounds]) -> None:
    """Add the header names of messages in ``spans`` to ``seen``, also of those that the selection's filter leaves out.

    Ends with the fetch in which ``seen`` has got LOOKED_AT messages.
    """
    plain = replace(
        selection, columns="headers", projection=parse_columns("headers"), where=None, filter=None, verify=False,
        on_loss="skip",
    )  # fmt: skip
    for span in spans:
        reader = PartitionReader(
            transport, span.meta, span.partition, span.offset, end=span.end, sure=False, max_bytes=_FETCH_BYTES
        )
        while seen.messages < LOOKED_AT and not reader.done:
            before = reader.position
            for batch in reader.read(plain):
                seen.add_headers(batch.column("headers"))
            if reader.position == before:
                break


def find_seen_headers(transport: Transport, meta: TopicMeta, selection: Selection) -> SeenHeaders:
    """Return which headers of a filter the newest messages have, and the names that they have instead."""
    seen = SeenHeaders(selection.keys)
    newest = (
        ReadBounds(meta, part.number, max(part.first_offset, part.end_offset - LOOKED_AT), False, part.end_offset)
        for part in meta.partitions
    )
    look_at_headers(seen, transport, selection, newest)
    return seen


class DeclaredHeaders:
    """The header columns of a selection, and which had a value in the batches of a run."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        columns = selection.projection.headers if selection.projection else ()
        self._without_value = {column.name: column.header for column in columns}
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the rows that a reader gets."""
        self._rows += batch.num_rows
        for name in [name for name in self._without_value if batch.column(name).null_count < batch.num_rows]:
            del self._without_value[name]

    def doubtful(self) -> tuple[str, ...]:
        """Return header keys without any value: those of columns, and of the filter if it selected nothing."""
        if self._rows:
            return tuple(dict.fromkeys(self._without_value.values()))
        return self._selection.keys

    def warn_looking_at(self, transport: Transport, spans: Iterable[ReadBounds], topic: str, stacklevel: int) -> None:
        """Warn of each doubtful header that none of the first LOOKED_AT messages has, with the names seen there."""
        doubtful = self.doubtful()
        if not doubtful:
            return
        seen = SeenHeaders(doubtful)
        look_at_headers(seen, transport, self._selection, spans)
        if seen.messages:
            among = f"the {'first ' if seen.messages >= LOOKED_AT else ''}{seen.messages:,} messages of {topic!r}"
            condition = self._selection.filter
            for sentence in seen.sentences(among, condition.unquoted if condition else ()):
                warnings.warn(sentence, UnseenHeaderWarning, stacklevel=stacklevel + 1)

    def warn(self, topic: str, stacklevel: int) -> None:
        """Warn of each doubtful header without reading messages again, which a group or queue cannot do."""
        if self._rows:
            for key in self.doubtful():
                sentence = unseen_sentence(key, None, f"the {self._rows:,} messages of {topic!r}")
                warnings.warn(f"{sentence} that can be read", UnseenHeaderWarning, stacklevel=stacklevel + 1)
