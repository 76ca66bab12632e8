"""The quarantine table: listing what is in it and why, and redriving it, each message once and not too often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..columns.contract import did_you_mean
from ..filter.filter import Filter
from ..filter.parse import parse
from ..model.batch import SCHEMA
from ..model.errors import LocalError, SettingError
from ..model.names import flat_name
from ..tables.scan.schema import with_field_names
from ..tables.storage.files import table_location
from ..tables.storage.object_path import ObjectPath, TablePath
from .ledger import Ledger, LedgerEntry, MessageIdentity
from .plan import VERDICT
from .reasons import SENTENCES
from .redrive_delivery import RedriveDelivery, RedrivePlan
from .rows import COPY_SCHEMA, TIMESTAMP_US, replay
from .settings import PipelineSettings
from .side_effects import sends_once
from .state import existing

CHUNK_ROWS = 10_000
"""Messages that are redriven under one key, and so become visible together."""
MAX_REPLAYS = 3
ONCE: Final = "once"
AT_LEAST_ONCE: Final = "at least once: what an interrupted redrive had in hand may be sent twice"
"""Delivery of a redrive to servers that have neither transactions nor keys: Iggy's and NSQ's."""
PLACE = pa.schema(
    cast("list[pa.Field[Any]]", [pa.field("stream", pa.string()), pa.field("topic", pa.string()), COPY_SCHEMA.field(0)])
)
SHAPE = pa.schema([*VERDICT, *PLACE, *SCHEMA])
"""The columns of the quarantine table, with message fields as in Batch."""


_NAMED = pa.array(["expectation", "route"])
"""Reasons whose ``header`` is the name of what put the message there."""


@dataclass(frozen=True, slots=True)
class Redriven:
    """Result of a redrive, real or with ``dry_run``; ``resumed`` counts messages of an interrupted redrive.

    ``refused`` are messages that no topic takes, for what ``problems`` says; they wait.
    """

    sent: int
    parked: int
    already: int
    resumed: int
    batches: int
    dry_run: bool
    delivery: str
    """ONCE or AT_LEAST_ONCE."""
    refused: int = 0
    problems: tuple[str, ...] = ()


class Quarantine:
    """The quarantine of one pipeline: its table and its ledger. Raises LocalError before the pipeline's first run."""

    def __init__(self, settings: PipelineSettings) -> None:
        self._settings = settings
        self.table = table_location("quarantine", settings.quarantine_table)
        settings.storage.bind([self.table])
        self.ledger = Ledger(existing(settings))

    def batches(self, where: str | None = None, reasons: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """Yield the messages that ``where`` (a filter on the original messages) and ``reasons`` select, in SHAPE.

        A reason may also be the name of an expectation or a route of the pipeline's file. Raises FilterError for an
        invalid filter and SettingError for an unknown reason.
        """
        known = [*SENTENCES, *self._settings.check_names]
        for reason in reasons:
            if reason not in known:
                raise SettingError(
                    f"reason {reason!r} does not exist{did_you_mean(reason, known)}; reasons are {', '.join(known)}"
                )
        contract = self._settings.contract if self._settings.contract.typed else None
        condition = None if where is None else parse(where, contract)
        for batch in _read(self.table):
            if reasons:
                batch = batch.filter(_has_reason(batch, reasons))
            if condition is not None:
                batch = _select_rows(batch, condition)
            if batch.num_rows:
                yield batch

    def rows(
        self, where: str | None = None, reasons: Collection[str] = (), limit: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield a row per message: its coordinates, reason, header, how often it was redriven, and its status."""
        sent, parked = self.ledger.list_sent(), self.ledger.list_parked()
        count = 0
        for batch in self.batches(where, reasons):
            facts = batch.select(["reason", "header", "replays", "quarantined_at", "detail"])
            for identity, row in zip(identities(batch), facts.to_pylist(), strict=True):
                if limit is not None and count >= limit:
                    return
                count += 1
                yield {
                    "message": f"{identity[0]}/{identity[1]}/{identity[2]}", "reason": row["reason"],
                    "header": row["header"], "replays": row["replays"], "status": _status_of(identity, sent, parked),
                    "quarantined_at": row["quarantined_at"].isoformat(), "detail": row["detail"],
                }  # fmt: skip

    def find(self, message: str) -> list[dict[str, Any]]:
        """Return every row of one message, ``TOPIC/PARTITION/OFFSET``, whole, with its time as ``timestamp_us``.

        Raises LocalError if it does not exist.
        """
        name, _, rest = message.rpartition("/")
        topic, _, partition = name.rpartition("/")
        if not (topic and partition.isdigit() and rest.isdigit()):
            raise LocalError(
                f"{message!r} names no message; write TOPIC/PARTITION/OFFSET as `quarantine list` shows it"
            )
        found = []
        for batch in self.batches(f"offset = {int(rest)}"):
            numbers = batch.column("timestamp").cast(pa.int64())
            held = batch.drop_columns(["timestamp"]).append_column(TIMESTAMP_US, numbers)
            rows = zip(identities(batch), held.to_pylist(), strict=True)
            found += [row for identity, row in rows if identity[:3] == (topic, int(partition), int(rest))]
        if not found:
            raise LocalError(f"message {message} is not in {self.table}; list what is with lading quarantine list")
        return found

    def histogram(self, where: str | None = None) -> list[dict[str, Any]]:
        """Return a row per reason and header, the most frequent first: how many, and how many redriven or parked."""
        sent, parked = self.ledger.list_sent(), self.ledger.list_parked()
        counts: Counter[tuple[str, str | None]] = Counter()
        by_status: Counter[tuple[str, str | None, str]] = Counter()
        for batch in self.batches(where):
            reasons: Any = zip(batch.column("reason").to_pylist(), batch.column("header").to_pylist(), strict=True)
            for identity, (reason, header) in zip(identities(batch), reasons, strict=True):
                counts[reason, header] += 1
                by_status[reason, header, _status_of(identity, sent, parked)] += 1
        return [
            {"reason": reason, "header": header, "messages": count}
            | {status: by_status[reason, header, status] for status in ("waiting", "replayed", "parked")}
            for (reason, header), count in counts.most_common()
        ]

    def redrive(
        self,
        where: str | None = None,
        reasons: Collection[str] = (),
        *,
        max_replays: int = MAX_REPLAYS,
        limit: int | None = None,
        to: str | None = None,
        dry_run: bool = False,
        on_sent: Callable[[int], None] = lambda count: None,
    ) -> Redriven:
        """Send waiting messages back to their topic and partition, with their counter of redrives increased by one.

        Each is sent once, even if this is interrupted and called again: the ledger records what is to be sent before it
        is, and over ``lading://`` it is committed under a key, over ``kafka://`` in a transaction; to other servers the
        result says AT_LEAST_ONCE. Messages that were redriven ``max_replays`` times before
        are parked. ``to`` names another topic.
        """
        if dry_run:
            return self._plan_redrive(where, reasons, max_replays, limit, to)
        with self.ledger.lock():
            delivery = RedriveDelivery(self.ledger, self._settings.access, on_sent)
            resumed = self._finish(delivery)

            def send(batch: pa.RecordBatch) -> int:
                steps = 0
                for topic, part in _by_topic(batch):
                    try:
                        server = self._server_of(topic, to)
                    except LocalError as error:
                        delivery.refused[str(error)] += part.num_rows
                        continue
                    steps += delivery.send(server, to or topic, identities(part), _replay_batch(part)) > 0
                return steps

            done = self._sort_out(where, reasons, max_replays, limit, send, dry_run=False, resumed=resumed)
            refused = sum(delivery.refused.values())
            sent = done.sent - refused
            delivery.require_any(sent + resumed)
            return replace(done, sent=sent, refused=refused, problems=tuple(delivery.refused))

    def _plan_redrive(
        self, where: str | None, reasons: Collection[str], max_replays: int, limit: int | None, to: str | None
    ) -> Redriven:
        plan = RedrivePlan(self._settings.access)

        def look(batch: pa.RecordBatch) -> int:
            for topic, part in _by_topic(batch):
                try:
                    plan.count_accepted(self._server_of(topic, to), to or topic, part.num_rows)
                except LocalError as error:
                    plan.refused[str(error)] += part.num_rows
            return 0

        done = self._sort_out(where, reasons, max_replays, limit, look, dry_run=True, resumed=0)
        refused = sum(plan.refused.values())
        return replace(done, sent=done.sent - refused, refused=refused, problems=tuple(plan.refused))

    def _sort_out(
        self, where: str | None, reasons: Collection[str], max_replays: int, limit: int | None,
        send: Callable[[pa.RecordBatch], int], *, dry_run: bool, resumed: int,
    ) -> Redriven:  # fmt: skip
        sent, before = self.ledger.list_sent(), self.ledger.list_parked()
        count = already = steps = 0
        parked: list[MessageIdentity] = []
        freed: list[MessageIdentity] = []
        for batch in self.batches(where, reasons):
            keep: list[int] = []
            replays: list[Any] = batch.column("replays").to_pylist()
            for at, (identity, times) in enumerate(zip(identities(batch), replays, strict=True)):
                if identity in sent:
                    already += 1
                elif times >= max_replays:
                    parked.append(identity)
                elif limit is None or count + len(keep) < limit:
                    keep.append(at)
                    freed += [identity] if identity in before else []
            count += len(keep)
            if keep:
                steps += send(batch.take(pa.array(keep)))
        if not dry_run and parked:
            self.ledger.park(parked)
        if not dry_run and freed:
            self.ledger.unpark(freed)
        return Redriven(count, len(parked), already, resumed, steps, dry_run, self._delivery_of())

    def _delivery_of(self) -> str:
        servers = {self._settings.server(source) for source in self._settings.document.source}
        once = all(sends_once(server, self._settings.access(server)) for server in servers)
        return ONCE if once else AT_LEAST_ONCE

    def _finish(self, delivery: RedriveDelivery) -> int:
        """Send what an interrupted redrive had recorded; messages that arrived then are not duplicated."""

        def restore(entry: LedgerEntry) -> list[pa.RecordBatch]:
            wanted, parts = set(entry.messages), []
            for batch in self.batches():
                keep = [at for at, identity in enumerate(identities(batch)) if identity in wanted]
                parts += [_replay_batch(batch.take(pa.array(keep)))] if keep else []
            return parts

        return sum(delivery.finish(entry, partial(restore, entry)) for entry in self.ledger.entries() if not entry.done)

    def _server_of(self, topic: str, to: str | None) -> str:
        sources = self._settings.document.source
        mine = self._settings.find_source(topic)
        if mine is None and len(sources) > 1 and to is None:
            raise LocalError(f"no [[source]] of {self._settings.name} names the topic {topic!r} any more; use --to")
        return self._settings.server(mine or sources[0])


def identities(batch: pa.RecordBatch) -> list[MessageIdentity]:
    """Return the identities of the messages in the ledger."""
    columns = [batch.column(name).to_pylist() for name in ("stream", "topic", "partition", "offset")]
    times: list[Any] = batch.column("quarantined_at").cast(pa.int64()).to_pylist()
    return [
        (flat_name(stream, topic), partition, offset, time)
        for stream, topic, partition, offset, time in zip(*columns, times, strict=True)
    ]


def is_quarantine(columns: Collection[str]) -> bool:
    """Return whether a table with these columns is a quarantine."""
    return {*SHAPE.names} <= {*columns}


def select_messages(where: str) -> Callable[[pa.RecordBatch], pa.BooleanArray]:
    """Return what says which rows of a quarantine have messages that a filter selects. Raises FilterError."""
    condition = parse(where)
    return lambda batch: condition.selects(_to_shape(batch).select(SCHEMA.names))


def _has_reason(batch: pa.RecordBatch, reasons: Collection[str]) -> pa.BooleanArray:
    """Return which messages are there for one of ``reasons``: words, or names of expectations and routes."""
    wanted = pa.array(sorted(reasons), pa.string())
    word: Any = batch.column("reason")
    concerned: Any = batch.column("header")
    by_name = pc.and_(pc.is_in(word, value_set=_NAMED), pc.is_in(concerned, value_set=wanted))
    return cast("pa.BooleanArray", pc.or_(pc.is_in(word, value_set=wanted), by_name))


def _status_of(identity: MessageIdentity, sent: set[MessageIdentity], parked: set[MessageIdentity]) -> str:
    return "replayed" if identity in sent else "parked" if identity in parked else "waiting"


def _replay_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    return replay(batch).add_column(0, COPY_SCHEMA.field(0), batch.column("partition"))


def _by_topic(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    names = [identity[0] for identity in identities(batch)]
    for topic in dict.fromkeys(names):
        yield topic, batch.filter(pa.array([name == topic for name in names]))


def _read(table: TablePath) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table of Parquet files in SHAPE. Raises LocalError if a file lacks a column."""
    paths: Iterator[TablePath] = table.glob("*.parquet")
    for path in sorted(paths, key=str):
        with path.open_reader() if isinstance(path, ObjectPath) else path.open("rb") as source:
            file = pq.ParquetFile(source)
            missing = [name for name in SHAPE.names if name not in file.schema_arrow.names]
            if missing:
                raise LocalError(
                    f"quarantine {table}: {path.name} has no column {missing[0]!r}; move that file elsewhere"
                )
            for part in file.iter_batches(batch_size=CHUNK_ROWS):
                yield _to_shape(part)


def _to_shape(part: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of a file in SHAPE, whichever program wrote it: Spark names and types some columns its own way."""
    arrays = []
    for field in SHAPE:
        column = part.column(field.name)
        if field.name == "timestamp" and TIMESTAMP_US in part.schema.names:
            # releases before had the number itself in the column of times
            column = pc.coalesce(part.column(TIMESTAMP_US), column.cast(field.type).cast(pa.int64()))
        nested = pa.types.is_nested(field.type)
        arrays.append(with_field_names(column, field.type) if nested else column.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=SHAPE)


def _select_rows(batch: pa.RecordBatch, condition: Filter) -> pa.RecordBatch:
    return batch.filter(condition.selects(batch.select(SCHEMA.names)))
