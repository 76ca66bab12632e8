"""Reading one partition as Arrow, for Consumer and the bulk form: fetch, decode, verify, filter, project."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..filter.filter import select_fields, select_keys
from ..model.batch import FIELDS, ORIGIN_TIMESTAMP, SCHEMA, SCHEMA_WITH_ORIGIN
from ..model.errors import ChecksumMismatch, DataLoss, SettingError
from ..model.limits import BATCH_ROWS
from ..model.ranges import OffsetSpan, clip_ranges, merge_ranges
from ..model.run import Decoded
from ..model.scan_request import MAX_OFFSET, ScanRequest
from ..transports.epochs import fill_epochs
from ..transports.fetched import FetchResult, States
from ..transports.interface import Filtering, Queried, TopicMeta, Transport
from ..transports.losses import (
    LogState,
    LossCause,
    LostRange,
    ReaderPosition,
    describe_lost_range,
    describe_other_topic,
    find_log_loss,
    find_wrong_payload,
    select_damage,
    select_messages,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from ..columns.contract import Projection
    from ..filter.filter import Filter

LOG = logging.getLogger("lading.client")
OnLoss = Literal["fail", "skip"]
CHECKED = ("payload", "checksum")


@dataclass(frozen=True)
class Selection:
    """Which messages are read, and what of each: columns (None is the whole Batch), condition, states, checks.

    ``columns`` and ``where`` are also kept as text, for servers that filter and project themselves.
    """

    columns: str | None = None
    projection: Projection | None = None
    where: str | None = None
    filter: Filter | None = None
    states: States = "available"
    verify: bool = True
    on_loss: OnLoss = "fail"
    skip_remedy: str = "read with on_loss='skip'"
    """Remedy for errors: how to continue with the existing messages."""
    origin_times: bool = False
    """Whether whole Batches have the column of origin times too."""

    @staticmethod
    def parse(
        columns: str | None,
        where: str | None,
        states: States,
        verify: bool,
        on_loss: OnLoss,
        payload: Mapping[str, str] | None = None,
    ) -> Selection:
        """Parse the user's texts; ``payload`` says how payloads are read. Raises SettingError or FilterError."""
        from ..columns.contract import parse_columns
        from ..registry.payload_form import parse_payload_form

        form = parse_payload_form(payload)
        projection = parse_columns(columns, form) if columns is not None else None
        condition: Filter | None = None
        if where is not None:
            from ..filter.parse import parse

            condition = parse(where, projection, closed=False, form=form)
        return Selection(columns, projection, where, condition, states, verify, on_loss)

    @property
    def fields(self) -> frozenset[str]:
        """Message fields to decode."""
        fields = select_fields(self.projection, self.filter, *(CHECKED if self.verify else ()))
        if self.projection is not None and self.projection.requires_values:
            fields |= {"offset"}
        return fields | {ORIGIN_TIMESTAMP} if self.origin_times else fields

    @property
    def keys(self) -> tuple[str, ...]:
        """Header keys to locate."""
        return select_keys(self.projection, self.filter)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        if self.projection is not None:
            return self.projection.schema
        return SCHEMA_WITH_ORIGIN if self.origin_times else SCHEMA


def columns_text(columns: str | Sequence[str] | None) -> str | None:
    """Return the columns as one text: a list of parts is joined. Raises SettingError for anything else."""
    if columns is None or isinstance(columns, str):
        return columns
    parts = list(columns) if isinstance(columns, Sequence) else [columns]
    if wrong := next((part for part in parts if not isinstance(part, str)), None):
        raise SettingError(
            f"columns {wrong!r}: a column is a text; write \"offset, carrier string\" or ['offset', 'carrier string']"
        )
    return ", ".join(parts)


class PartitionReader:
    """Reads one partition from ``offset`` up to ``end``.

    The next read starts at ``position``, which moves past messages that are not visible or do not match. ``sure`` says
    that ``offset`` was read or named before, so that a gap before the first message kept is a loss. A request asks for
    ``max_bytes``; messages are decoded and filtered in batches of at most ``max_rows``. ``damaged`` are the ranges of
    offsets, merged, that reads passed over because they are damaged, which only ``on_loss="skip"`` allows.
    """

    def __init__(
        self,
        transport: Transport,
        meta: TopicMeta,
        partition: int,
        offset: int,
        *,
        end: int | None = None,
        epoch: int = 0,
        sure: bool = True,
        max_bytes: int = 1 << 20,
        max_rows: int = BATCH_ROWS,
    ) -> None:
        self._transport = transport
        self.meta = meta
        self.partition = partition
        self.position = offset
        self.end = MAX_OFFSET if end is None else end
        self.epoch = epoch
        self.damaged: list[OffsetSpan] = []
        self.bad_values: dict[str, int] = {}
        """Values that are null since they are not of the type of their column, by its name."""
        self._sure = sure
        self._topic_id = meta.topic_id
        self._to_compare = sure and epoch > 0
        self._max_bytes = max_bytes
        self._max_rows = max_rows
        self._error: Exception | None = None

    @property
    def done(self) -> bool:
        """Whether ``end`` is reached."""
        return self.position >= self.end

    def read(self, selection: Selection, wait_ms: int = 0) -> list[pa.RecordBatch]:
        """Return the next batches; none if there is nothing new after ``wait_ms``, or nothing of it matches.

        Raises ChecksumMismatch if a payload is still wrong when requested once more, after the messages before it were
        returned; DataLoss if messages between the position and the first one kept were deleted.
        """
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self.done:
            return []
        # a server of an earlier release would take a column of the payload for one of a header
        is_local = selection.projection is not None and bool(selection.projection.payload)
        # and a server reads payloads as JSON
        is_local |= selection.filter is not None and not selection.filter.form.reads_json
        if selection.where is not None and not is_local and isinstance(self._transport, Filtering):
            batches = self._query_server(self._transport, selection)
            if batches is not None:
                return batches
            if not wait_ms:
                return []
            # the server filters without waiting: wait for anything new by the other way
            self._transport.fetch(self.meta.name, self.partition, self.position, max_bytes=1, wait_ms=wait_ms)
            return self._query_server(self._transport, selection) or []
        return self._fetch(selection, wait_ms)

    def _fetch(self, selection: Selection, wait_ms: int) -> list[pa.RecordBatch]:
        fetched = self._fetch_more(wait_ms, selection)
        parts = list(self._decode_fetched(fetched, selection, self.end))
        if selection.verify and find_wrong_payload(parts) is not None:
            fetched = self._fetch_more(0, selection)
            parts = list(self._decode_fetched(fetched, selection, self.end))
            wrong = find_wrong_payload(parts)
            if wrong is not None:
                parts = list(self._decode_fetched(fetched, selection, wrong))
                return self._stop_at(wrong, [batch for part in parts for batch in self._show_part(part, selection)])
        batches = [batch for part in parts for batch in self._show_part(part, selection)]
        self.position = min(max(fetched.end_offset, self.position), self.end)
        self.epoch = fetched.epoch
        return batches

    def _decode_fetched(self, fetched: FetchResult, selection: Selection, end: int) -> Iterator[Decoded]:
        request = ScanRequest(self.position, end, selection.fields, selection.keys, self._max_rows)
        return fetched.decode(request, states=selection.states)

    def _fetch_more(self, wait_ms: int, selection: Selection) -> FetchResult:
        if self._to_compare:
            self._to_compare = False
            self._compare(selection)
        while True:
            begun = self.position
            fetched = self._transport.fetch(
                self.meta.name, self.partition, begun, max_bytes=self._max_bytes, wait_ms=wait_ms
            )
            self._look_for_loss(fetched, selection)
            # after a loss, the offset to continue from may be before the one requested; that happens once
            if self.position >= begun:
                return fetched

    def _compare(self, selection: Selection) -> None:
        """Check whether the log was truncated since the position was stored, if the server reports it on request."""
        parts = fill_epochs(self._transport, self.meta, {self.partition: self.epoch}).partitions
        (part,) = [part for part in parts if part.number == self.partition]
        where = (self.meta.name, self.partition)
        self._look_for_loss(
            FetchResult(*where, [], self.position, topic_id=self._topic_id, epochs=part.epochs), selection
        )

    def _look_for_loss(self, fetched: FetchResult | Queried, selection: Selection) -> None:
        loss = self._describe_loss(fetched)
        if loss and selection.on_loss == "fail":
            raise DataLoss(f"{loss}; to continue with what exists, {selection.skip_remedy}")
        if loss:
            LOG.warning("%s; continuing at offset %d", loss, self.position)
        self._sure, self._topic_id = True, fetched.topic_id
        self.position = max(self.position, min(fetched.first_offset, self.end))
        if fetched.damaged:
            self.damaged = merge_ranges([*self.damaged, *clip_ranges(fetched.damaged, self.position, self.end)])

    def _describe_loss(self, fetched: FetchResult | Queried) -> str:
        """Return what is lost at the position, in words, or ""; after a truncation the position moves back as well."""
        where = (self.meta.name, self.partition)
        # before the first read a position that was not given is wherever the log begins
        position = ReaderPosition(self._topic_id, self.epoch or None, self.position if self._sure else None)
        lost = find_log_loss(position, LogState(fetched.topic_id, fetched.epochs, fetched.first_offset))
        before = self.position
        if lost is not None and lost.cause is LossCause.OTHER_TOPIC:
            self.position = lost.resume
            return describe_other_topic(self.meta.name)
        if lost is not None and lost.cause is LossCause.CUT_BACK:
            self.position = lost.at
            return f"{describe_lost_range(*where, lost.at, before, LostRange.CUT)}; others may have these offsets now"
        if lost is not None:
            return describe_lost_range(*where, before, lost.at, LostRange.DELETED)
        for first, end in select_damage(fetched.damaged, self.position, self.end):
            return describe_lost_range(*where, first, end, LostRange.DAMAGED)
        return ""

    def _query_server(self, transport: Filtering, selection: Selection) -> list[pa.RecordBatch] | None:
        """Return batches that the server filtered, or None if there is nothing new."""
        checked = selection.verify and selection.projection is None
        for attempt in (1, 2):
            begun = self.position
            queried = transport.query(
                self.meta.name,
                self.partition,
                begun,
                end=None if self.end == MAX_OFFSET else self.end,
                where=selection.where,
                states=selection.states,
                columns=selection.columns,
                max_rows=BATCH_ROWS,
            )
            self._look_for_loss(queried, selection)
            if self.position < begun:
                # another topic has the name now: what was asked for is not its beginning
                continue
            batches = queried.batches
            parts = [_as_decoded(batch) for batch in batches] if checked else []
            wrong = find_wrong_payload(parts)
            if wrong is None:
                break
            if attempt == 2:
                kept = [batch.filter(_are_below(batch, wrong)) for batch in batches]
                return self._stop_at(wrong, [batch for batch in kept if batch.num_rows])
        else:
            return None
        for batch in batches:
            self._require_values(batch, selection, batch)
        self.epoch = queried.epoch
        if queried.end_offset <= begun:
            return None
        self.position = queried.end_offset
        return [batch for batch in batches if batch.num_rows]

    def _stop_at(self, offset: int, before: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        self.position = offset
        error = ChecksumMismatch(
            f"the payload at topic {self.meta.name!r}, partition {self.partition}, offset {offset} does not match its "
            f"checksum, also when requested once more; to continue after it seek({self.partition}, {offset + 1}), "
            "or read with verify_checksum=False"
        )
        if not before:
            raise error
        self._error = error
        return before

    def _show_part(self, part: Decoded, selection: Selection) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        if selection.filter is not None:
            part = select_messages(_select_columns(part, selection.projection), selection.filter.selects(part))
        if not part.count:
            return
        if selection.projection is None:
            schema = selection.schema
            batch = pa.RecordBatch.from_arrays([part.columns[name] for name in schema.names], schema=schema)
        else:
            from ..columns.assemble import assemble

            place: dict[str, str | int] = {
                "stream": self.meta.stream,
                "topic": self.meta.topic,
                "partition": self.partition,
            }
            made = assemble(part, selection.projection, place)
            batch = made.batch
            for name, flags in made.bad.items():
                self.bad_values[name] = self.bad_values.get(name, 0) + (flags.true_count or 0)
            self._require_values(batch, selection, part.columns)
        yield batch

    def _require_values(self, batch: pa.RecordBatch, selection: Selection, columns: Any) -> None:
        """Raise LocalError if a required column has a null; ``columns`` has the offsets, if they were read."""
        projection = selection.projection
        if projection is None or not projection.requires_values:
            return

        def describe_place(row: int) -> str:
            try:
                place = f"offset {columns['offset'][row].as_py()}"
            except KeyError:
                place = f"after offset {self.position - 1}"
            return f"topic {self.meta.name!r}, partition {self.partition}, {place}"

        projection.require_values(batch, describe_place, columns["payload"] if projection.payload else None)


def to_batches(fetched: FetchResult, states: States, first: int, end: int) -> list[pa.RecordBatch]:
    """Return the messages of a fetch with ``first`` <= offset < ``end`` that a reader of these states sees."""
    import pyarrow as pa

    parts = fetched.decode(ScanRequest(first, end, frozenset(FIELDS)), states=states)
    return [
        pa.RecordBatch.from_arrays([part.columns[name] for name in FIELDS], schema=SCHEMA)
        for part in parts
        if part.count
    ]


def _as_decoded(batch: pa.RecordBatch) -> Decoded:
    return Decoded(batch.num_rows, dict(zip(batch.schema.names, batch.columns, strict=True)), {})


def _select_columns(part: Decoded, projection: Projection | None) -> Decoded:
    """Return the columns and headers of a projection alone, without what was decoded for a filter."""
    if projection is None:
        return part
    wanted = {*projection.message_fields, *(("offset",) if projection.requires_values else ())}
    columns = {name: part.columns[name] for name in part.columns if name in wanted}
    return Decoded(part.count, columns, {key: part.located[key] for key in projection.header_keys})


def _are_below(batch: pa.RecordBatch, offset: int) -> Any:
    import pyarrow as pa

    return pa.array(np.asarray(batch.column("offset")) < offset)
