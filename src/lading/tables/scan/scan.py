"""Reading one range in an executor, for the source and the table path: fetch, check, decode, filter, convert."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from ...client.patience import Patience
from ...columns.assemble import assemble, to_decoded
from ...columns.contract import PLACE_FIELDS, type_word
from ...columns.instants import TIME_FIELDS, drop_unreadable_times
from ...columns.typed import convert_to_text
from ...filter.filter import select_fields, select_keys
from ...model.chunk_table import LAST_OFFSET
from ...model.errors import ChecksumMismatch, DataLoss, LadingError, LocalError, Unreachable
from ...model.run import Decoded
from ...model.scan_request import ScanRequest
from ...payloads.found import WalkedPayloads
from ...transports.checksums import mismatches
from ...transports.epochs import fill_epochs
from ...transports.fetched import FetchResult, missing
from ...transports.interface import Filtering, PartitionMeta, TopicMeta, Transport
from ...transports.losses import (
    LogState,
    LossCause,
    LostRange,
    ReaderPosition,
    describe_lost_range,
    describe_other_topic,
    find_log_loss,
    next_epoch_start,
    select_damage,
    select_messages,
)
from ...transports.open import open_transport
from ..plan.offsets import PartitionOffset, find_loss
from ..plan.ranges import OffsetRange
from .scan_spec import ScanSpec

R = TypeVar("R")
LOG = logging.getLogger("lading.spark")
FETCH_BYTES = 8 << 20
QUIET_TIMEOUT_S = 10.0
"""Time that a planned range may be unreadable, as while a broker restarts, before that is an error."""


@dataclass(frozen=True, slots=True)
class ScannedBatch:
    """Some messages of a range: the batch of the projection, and the columns made besides (``checksum_ok``).

    ``locate`` names topic, partition and offset of a row.
    """

    batch: pa.RecordBatch
    locate: Callable[[int], str]
    checksum_ok: pa.BooleanArray | None = None


@dataclass(slots=True)
class Counts:
    """Counts of a range that was read: messages seen, those that matched, values that were unreadable.

    ``unreadable_times`` are the messages whose own time is outside the years 1 to 9999.
    """

    read: int = 0
    kept: int = 0
    bad_values: int = 0
    unreadable_times: int = 0


def read_range(
    reading: ScanSpec, piece: OffsetRange, counts: Counts | None = None, patience: Patience | None = None
) -> Iterator[ScannedBatch]:
    """Yield the messages of one range, in order; with ``patience``, wait for a server that becomes unreachable.

    Raises DataLoss if some of it was deleted (with ``fail_on_data_loss``; else warns and reads the rest),
    ChecksumMismatch, and LocalError for an unreadable header value if those fail, with topic, partition and offset.
    """
    transport = open_transport(reading.from_, **reading.transport)
    try:
        yield from _RangeReader(transport, reading, piece, counts or Counts(), patience).parts()
    finally:
        transport.close()


@dataclass(frozen=True, slots=True)
class FetchedRange:
    """The fetched messages from ``first`` up to, not including, ``end``; ``place`` is their stream, topic and
    partition."""

    fetched: FetchResult
    first: int
    end: int
    place: Mapping[str, str | int]


def fetch_range(reading: ScanSpec, piece: OffsetRange) -> Iterator[FetchedRange]:
    """Yield what ``read_range`` reads, in the bytes of its dialects: every message of the range."""
    transport = open_transport(reading.from_, **reading.transport)
    try:
        yield from _RangeReader(transport, reading, piece, Counts()).stretches()
    finally:
        transport.close()


class _RangeReader:
    def __init__(
        self,
        transport: Transport,
        reading: ScanSpec,
        piece: OffsetRange,
        counts: Counts,
        patience: Patience | None = None,
    ) -> None:
        self._transport = transport
        self._patience = patience
        self._reading = reading
        self._piece = piece
        self._counts = counts
        self._filter = reading.condition()
        self._check = reading.verify_checksum or reading.checksum_ok
        checked = ("payload", "checksum") if self._check else ()
        self._fields = select_fields(reading.projection, self._filter, "offset", *checked)
        self._keys = select_keys(reading.projection, self._filter)
        self._place: dict[str, str | int] = {}

    def stretches(self) -> Iterator[FetchedRange]:
        start, end = self._begin()
        if start < end:
            for fetched, position in self._fetch_ahead(start, end):
                yield FetchedRange(fetched, position, end, self._place)

    def _begin(self) -> tuple[int, int]:
        piece, transport = self._piece, self._transport
        meta = self._ask(lambda: fill_epochs(transport, transport.topic(piece.topic), {piece.partition: piece.epoch}))
        part = _find_partition(meta, piece.partition)
        self._place = {"stream": meta.stream, "topic": meta.topic, "partition": part.number}
        return self._still_there(meta, part)

    def _ask(self, request: Callable[[], R]) -> R:
        """Return the server's response; with patience, wait for a server that is unreachable."""
        while True:
            try:
                answer = request()
            except LadingError as error:
                if self._patience is None:
                    raise
                self._patience.wait(error)
            else:
                if self._patience is not None:
                    self._patience.reset()
                return answer

    def parts(self) -> Iterator[ScannedBatch]:
        start, end = self._begin()
        if start >= end:
            return
        if self._reading.server_may_filter and isinstance(self._transport, Filtering):
            yield from self._filter_on_server(self._transport, start, end)
            return
        for decoded in self._filter_locally(start, end):
            if decoded.count:
                yield self._assemble_batch(decoded)

    # what is still there

    def _still_there(self, meta: TopicMeta, part: PartitionMeta) -> tuple[int, int]:
        """Return start and end of the readable part of the range. Raises DataLoss if losses fail."""
        piece = self._piece
        start, end = piece.start, piece.end
        lost = find_loss(PartitionOffset(piece.topic_id, piece.epoch, start), meta, part)
        if lost is not None:
            self._report_loss(lost.sentence(piece.topic, piece.partition, start))
            start = end if lost.resume > end or lost.cause is LossCause.OTHER_TOPIC else max(start, lost.resume)
        cut = next_epoch_start(piece.epoch, part.epochs)
        return start, end if cut is None else self._cut(max(start, cut), end)

    def _cut(self, at: int, end: int) -> int:
        """Return the end of a range that was truncated at ``at``. Raises DataLoss if losses fail."""
        if at >= end:
            return end
        self._lose_range(at, end, LostRange.CUT)
        return at

    def _lose_range(self, first: int, end: int, what: LostRange) -> None:
        sentence = describe_lost_range(self._piece.topic, self._piece.partition, first, end, what)
        self._report_loss(f"{sentence}; to continue without them, set failOnDataLoss=false")

    def _report_loss(self, sentence: str) -> None:
        if self._reading.fail_on_data_loss:
            raise DataLoss(sentence)
        LOG.warning("%s (failOnDataLoss=false)", sentence)

    # messages

    def _filter_locally(self, start: int, end: int) -> Iterator[Decoded]:
        reading = self._reading
        for fetched, position in self._fetch_ahead(start, end):
            request = ScanRequest(position, end, self._fields, self._keys, reading.rows_max, reading.bytes_max)
            for decoded in fetched.decode(request, states=reading.states):
                self._counts.read += decoded.count
                yield self._select_matching(decoded) if self._filter else decoded

    def _fetch_ahead(self, start: int, end: int) -> Iterator[tuple[FetchResult, int]]:
        """Yield what was fetched, and from which position; the next fetch is in flight while one is decoded."""
        with ThreadPoolExecutor(1, thread_name_prefix="lading-fetch") as ahead:
            position = start
            coming = ahead.submit(self._fetch, position, end)
            while position < end:
                fetched = coming.result()
                cut = next_epoch_start(self._piece.epoch, fetched.epochs)
                end = end if cut is None else self._cut(max(position, cut), end)
                after = min(max(fetched.end_offset, position), end)
                self._check_whole(fetched, position, end)
                here, position = position, after
                coming = ahead.submit(self._fetch, position, end) if position < end else _fetch_nothing()
                yield fetched, here

    def _fetch(self, position: int, end: int) -> FetchResult:
        """Fetch the next chunks; wait while nothing is readable yet, for a broker that restarts."""
        piece = self._piece
        deadline = time.monotonic() + QUIET_TIMEOUT_S
        while True:
            fetched = self._ask(
                lambda: self._transport.fetch(
                    piece.topic, piece.partition, position, max_bytes=FETCH_BYTES, wait_ms=200
                )
            )
            self._check_same(fetched.topic_id)
            cut = next_epoch_start(piece.epoch, fetched.epochs)
            if fetched.end_offset > position or (cut is not None and cut < end):
                return fetched
            if time.monotonic() > deadline:
                raise Unreachable(
                    f"topic {piece.topic!r}, partition {piece.partition}: offsets {position} to {end - 1} were planned "
                    "for reading, but readable messages end at "
                    f"{fetched.last_stable_offset} since {QUIET_TIMEOUT_S:g} s"
                )

    def _check_whole(self, fetched: FetchResult, position: int, end: int) -> None:
        """Raise DataLoss if the chunks fetched are not consecutive, starting at ``position``, and losses fail."""
        self._tell_damaged(fetched.damaged, position, end)
        reached = int(fetched.runs[-1].chunks[-1, LAST_OFFSET]) + 1 if fetched.runs else position
        for first, until in missing(fetched.runs, position, min(reached, end)):
            self._lose_range(first, until, LostRange.DELETED)

    def _check_same(self, topic_id: bytes | None) -> None:
        wanted = bytes.fromhex(self._piece.topic_id) if self._piece.topic_id else None
        if find_log_loss(ReaderPosition(wanted, None, None), LogState(topic_id, (), 0)) is not None:
            raise DataLoss(describe_other_topic(self._piece.topic))

    def _tell_damaged(self, damaged: Sequence[tuple[int, int]], first: int, end: int) -> None:
        for low, high in select_damage(damaged, first, end):
            self._lose_range(low, high, LostRange.DAMAGED)

    def _filter_on_server(self, transport: Filtering, start: int, end: int) -> Iterator[ScannedBatch]:
        """Yield messages that the server filtered, so that only matching ones are transferred."""
        piece, reading = self._piece, self._reading
        columns = reading.server_columns()
        position = start
        deadline = time.monotonic() + QUIET_TIMEOUT_S
        while position < end:
            query = partial(
                transport.query, piece.topic, piece.partition, position, end=end, where=reading.where,
                states=reading.states, columns=columns, headers_only=columns is None and "payload" not in self._fields,
            )  # fmt: skip
            found = self._ask(query)
            self._check_same(found.topic_id)
            self._tell_damaged(found.damaged, position, end)
            for batch in found.batches:
                for low in range(0, batch.num_rows, reading.rows_max):
                    some = batch.slice(low, reading.rows_max)
                    self._counts.read += some.num_rows
                    yield (
                        self._assemble_batch(to_decoded(some, self._keys))
                        if columns is None
                        else self._to_scanned_batch(some)
                    )
            if found.end_offset <= position:
                if time.monotonic() > deadline:
                    raise Unreachable(
                        f"topic {piece.topic!r}, partition {piece.partition}: nothing from offset {position} on could "
                        f"be read for {QUIET_TIMEOUT_S:g} s"
                    )
                time.sleep(0.1)
                continue
            position, deadline = found.end_offset, time.monotonic() + QUIET_TIMEOUT_S

    def _to_scanned_batch(self, batch: pa.RecordBatch) -> ScannedBatch:
        """Return a batch with header columns converted by the server, in the requested order and with its place."""
        projection = self._reading.projection
        held: dict[str, Any] = dict(zip(batch.schema.names, batch.columns, strict=True))
        ok = self._check_payloads(Decoded(batch.num_rows, held, {})) if self._check else None
        for name in PLACE_FIELDS.keys() & set(projection.fields):
            here: Any = pa.scalar(self._place[name], PLACE_FIELDS[name])
            held[name] = pa.repeat(here, batch.num_rows)
        for name in TIME_FIELDS & held.keys():
            # a server of an earlier release sends the number
            held[name] = drop_unreadable_times(held[name])[0]
        bad: dict[str, pa.BooleanArray] = {}
        for name in set(projection.texts) & set(projection.fields):
            held[name], flags = convert_to_text(held[name])
            if flags is not None:
                bad[name] = flags
                self._counts.bad_values += flags.true_count
        if bad and self._reading.fail_on_bad_value:
            self._refuse_bad(Decoded(batch.num_rows, {"offset": batch.column("offset")}, {}), bad)
        schema = projection.schema
        self._counts.kept += batch.num_rows
        if "timestamp" in projection.fields:
            self._counts.unreadable_times += held["timestamp"].null_count
        made = pa.RecordBatch.from_arrays([held[field.name].cast(field.type) for field in schema], schema=schema)
        locate = self._make_locator(batch.column("offset"))
        projection.require_values(made, locate)
        return ScannedBatch(made, locate, ok)

    def _select_matching(self, decoded: Decoded) -> Decoded:
        assert self._filter is not None
        return select_messages(decoded, self._filter.selects(decoded))

    # columns

    def _assemble_batch(self, decoded: Decoded) -> ScannedBatch:
        ok = self._check_payloads(decoded) if self._check else None
        made = assemble(decoded, self._reading.projection, self._place, self._reading.form)
        if made.bad:
            self._counts.bad_values += made.bad_count
            self._counts.unreadable_times += made.unreadable_times
            if self._reading.fail_on_bad_value:
                self._refuse_bad(decoded, made.bad, made.walked)
        locate = self._make_locator(decoded.columns["offset"])
        self._reading.projection.require_values(made.batch, locate, decoded.columns.get("payload"))
        self._counts.kept += decoded.count
        return ScannedBatch(made.batch, locate, ok)

    def _check_payloads(self, decoded: Decoded) -> pa.BooleanArray | None:
        """Return whether each payload matches its checksum, null without one. Raises ChecksumMismatch if verified."""
        wrong = mismatches(decoded.columns["payload"], decoded.columns["checksum"])
        if wrong.size and self._reading.verify_checksum:
            offset = decoded.columns["offset"][int(wrong[0])].as_py()
            raise ChecksumMismatch(
                f"{self._locate(offset)}: the payload is not what its checksum says; read it with "
                "verify_checksum=false and the column checksum_ok to see which messages are affected"
            )
        if not self._reading.checksum_ok:
            return None
        good = np.ones(decoded.count, np.bool_)
        good[wrong] = False
        unknown = decoded.columns["checksum"].is_null().to_numpy(zero_copy_only=False)
        return pa.array(good, pa.bool_(), mask=unknown)

    def _refuse_bad(
        self, decoded: Decoded, bad: Mapping[str, pa.BooleanArray], walked: WalkedPayloads | None = None
    ) -> None:
        name, flags = next(iter(bad.items()))
        row = int(np.flatnonzero(flags.to_numpy(zero_copy_only=False))[0])
        column = self._reading.projection.column(name)
        if name in self._reading.projection.texts:
            raise LocalError(
                f"{self._locate(decoded.columns['offset'][row].as_py())}: the {name} of the message is not UTF-8; "
                f"on_bad_value=null reads it as null, and the column `{name}` alone its bytes"
            )
        member = self._reading.projection.payload_column(name)
        if member is not None and walked is not None:
            problem = walked.describe_at(member.path, row) or f"{member.text} has a value that is no {member.word}"
            raise LocalError(
                f"{self._locate(decoded.columns['offset'][row].as_py())}: {problem}; on_bad_value=null reads it as null"
            )
        if column is None:
            raise LocalError(
                f"{self._locate(decoded.columns['offset'][row].as_py())}: the {name} of the message is "
                f"{decoded.columns[name][row].value} µs since 1970, which is outside the years 1 to 9999; "
                "on_bad_value=null reads it as null"
            )
        at = decoded.located[column.header]
        shown = at.data[at.start[row] : at.start[row] + min(at.length[row], 40)].tobytes()
        raise LocalError(
            f"{self._locate(decoded.columns['offset'][row].as_py())}: header {column.header!r} has the value {shown!r} "
            f"(kind {int(at.kind[row])}), which is no {type_word(column.type)} under encoding {column.encoding.value}; "
            "on_bad_value=null reads it as null"
        )

    def _make_locator(self, offsets: Any) -> Callable[[int], str]:
        return lambda row: self._locate(offsets[row].as_py())

    def _locate(self, offset: int) -> str:
        return f"topic {self._piece.topic!r}, partition {self._piece.partition}, offset {offset}"


def _find_partition(meta: TopicMeta, number: int) -> PartitionMeta:
    for part in meta.partitions:
        if part.number == number:
            return part
    raise DataLoss(f"topic {meta.name!r} has no partition {number} any more; it has {len(meta.partitions)}")


def _fetch_nothing() -> Future[FetchResult]:
    return Future()
