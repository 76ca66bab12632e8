"""Send dead letters of other frameworks back to their topics: unchanged, each once, and not again and again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..client.consumer import Consumer
from ..model.batch import FIELDS, SCHEMA
from ..model.errors import LadingError, LocalError, Unreachable
from ..tables.commit.state import PipelineStateDirectory
from ..tables.storage.files import OWN
from ..transports.open import is_queue
from .dead_letters import parse_filter, recognize, restore_keys, select, strip
from .ledger import Ledger, LedgerEntry, MessageIdentity
from .quarantine import AT_LEAST_ONCE, MAX_REPLAYS, ONCE
from .redrive_delivery import RedriveDelivery, RedrivePlan
from .rows import COPY_SCHEMA, replay, replays_of
from .side_effects import sends_once

ORIGIN_MS_MAX: Final = ((1 << 63) - 1) // 1000
READ: Final = ", ".join(("partition", *FIELDS))
WITHOUT_PAYLOAD: Final = "share group"
"""Dead letters of this kind have no payload unless their broker is configured to copy it."""


@dataclass(frozen=True, slots=True)
class RedrivenLetters:
    """Result of a redrive, or with ``dry_run`` what it would be.

    ``strangers`` are messages of the topic that no convention recognises, ``gone`` those whose payload was left out and
    whose original was deleted, ``refused`` those that no topic takes, for what ``problems`` says.
    """

    sent: int
    parked: int
    already: int
    strangers: int
    gone: int
    resumed: int
    dry_run: bool
    delivery: str
    """ONCE or AT_LEAST_ONCE."""
    refused: int = 0
    problems: tuple[str, ...] = ()


class ForeignDeadLetters:
    """The dead letters of others in one topic. ``state`` is the directory that remembers what was sent again."""

    def __init__(self, url: str, topic: str, state: Path, transport: Mapping[str, Any] | None = None) -> None:
        if is_queue(url):
            raise LocalError(f"{url} is a queue, whose messages have no places to go back to; name a topic of Kafka's")
        self._url, self._topic, self._state = url, topic, state
        self._transport = dict(transport or {})

    def batches(self, where: str | None = None) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """Yield messages with their partition, and their COLUMNS; strangers too, unless ``where`` leaves them out."""
        condition = None if where is None else parse_filter(where)
        options: dict[str, Any] = {"start": "earliest", "timeout_s": 0, "verify_checksum": False}
        with Consumer(self._url, self._topic, **options, **self._transport) as consumer:
            for batch in consumer.batches(READ):
                columns = recognize(batch.column("headers"))
                if condition is not None:
                    chosen = select(condition, batch, columns)
                    batch, columns = batch.filter(chosen), columns.filter(chosen)
                if batch.num_rows:
                    yield batch, columns

    def rows(self, where: str | None = None, limit: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield a row per dead letter: its place, and COLUMNS."""
        count = 0
        for batch, columns in self.batches(where):
            places = zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True)
            for (partition, offset), row in zip(places, columns.to_pylist(), strict=True):
                if limit is not None and count >= limit:
                    return
                if row["convention"] is not None:
                    count += 1
                    yield {"message": f"{self._topic}/{partition}/{offset}", **row}

    def redrive(
        self,
        where: str | None = None,
        *,
        limit: int | None = None,
        max_replays: int = MAX_REPLAYS,
        to: str | None = None,
        server: str | None = None,
        dry_run: bool = False,
        on_sent: Callable[[int], None] = lambda count: None,
    ) -> RedrivenLetters:
        """Send dead letters to their topic and partition, as they were before they failed.

        A header counts how often each was sent again; after ``max_replays`` times a letter is left in its topic. 0 adds
        no header and sends a message that was sent before only if it differs. ``to`` names another topic, ``server``
        another server. Messages that were sent are in the ledger: a second call sends none of them, an interrupted one
        is finished.
        """
        target = server or self._url
        ledger = self._open_ledger(create=not dry_run)
        with ledger.lock() if ledger is not None and not dry_run else nullcontext():
            delivery = None if ledger is None or dry_run else RedriveDelivery(ledger, self._access_to, on_sent)
            resumed = 0 if ledger is None or delivery is None else self._finish(ledger, delivery, max_replays)
            plan = RedrivePlan(self._access_to) if delivery is None else delivery
            before = ledger.list_sent() if ledger is not None else set()
            counts = dict.fromkeys(("sent", "parked", "already", "strangers", "gone"), 0)
            for batch, columns in self.batches(where):
                replays: list[Any] = replays_of(batch.column("headers")).to_pylist()
                keep: list[int] = []
                for at, identity in enumerate(self._identities_of(batch)):
                    if not columns.column("origin_topic")[at].is_valid:
                        counts["strangers"] += 1
                    elif identity in before:
                        counts["already"] += 1
                    elif max_replays and replays[at] >= max_replays:
                        counts["parked"] += 1
                    elif limit is None or counts["sent"] + len(keep) < limit:
                        keep.append(at)
                counts["sent"] += len(keep)
                if keep and delivery is not None:
                    rows = pa.array(keep)
                    sent, gone = self._send(delivery, target, to, batch.take(rows), columns.take(rows), max_replays)
                    counts["sent"] += sent - len(keep)
                    counts["gone"] += gone
                elif keep:
                    origins: list[Any] = columns.column("origin_topic").take(pa.array(keep)).to_pylist()
                    topics = Counter[str](to or topic for topic in origins)
                    accepted = sum(plan.count_accepted(target, *of_topic) for of_topic in topics.items())
                    counts["sent"] += accepted - len(keep)
        refused = plan.refused
        if delivery is not None:
            delivery.require_any(counts["sent"] + resumed)
        word = ONCE if sends_once(target, self._access_to(target)) else AT_LEAST_ONCE
        return RedrivenLetters(
            **counts, resumed=resumed, dry_run=dry_run, delivery=word, refused=sum(refused.values()),
            problems=tuple(refused),
        )  # fmt: skip

    def _send(
        self, delivery: RedriveDelivery, server: str, to: str | None, batch: pa.RecordBatch, columns: pa.RecordBatch,
        max_replays: int,
    ) -> tuple[int, int]:  # fmt: skip
        """Send messages by target topic; return how many were sent, and how many cannot be restored."""
        sent = gone = 0
        targets: list[Any] = [to or topic for topic in columns.column("origin_topic").to_pylist()]
        for topic in dict.fromkeys(targets):
            mine = pa.array([target == topic for target in targets])
            part, of_part = batch.filter(mine), columns.filter(mine)
            made, restored = self._restore(part, of_part, max_replays)
            gone += part.num_rows - len(restored)
            if not restored:
                continue
            identities = self._identities_of(part)
            sent += delivery.send(server, topic, [identities[at] for at in restored], made)
        return sent, gone

    def _access_to(self, server: str) -> Mapping[str, Any]:
        """Return the transport options of a server: those given are of the source."""
        return self._transport if server == self._url else {}

    def _finish(self, ledger: Ledger, delivery: RedriveDelivery, max_replays: int) -> int:
        """Send what an interrupted redrive had recorded, under the same key."""

        def restore(entry: LedgerEntry) -> list[pa.RecordBatch]:
            wanted, parts = set(entry.messages), []
            for batch, columns in self.batches():
                keep = pa.array([identity in wanted for identity in self._identities_of(batch)])
                if pc.any(keep).as_py():
                    parts.append(self._restore(batch.filter(keep), columns.filter(keep), max_replays)[0])
            return parts

        return sum(delivery.finish(entry, partial(restore, entry)) for entry in ledger.entries() if not entry.done)

    def _restore(
        self, batch: pa.RecordBatch, columns: pa.RecordBatch, max_replays: int
    ) -> tuple[pa.RecordBatch, list[int]]:
        """Return the originals in COPY_SCHEMA, in their order, and the row that each was restored from."""
        whole = _restore_originals(batch, columns)
        left_out = pc.and_(
            pc.equal(columns.column("convention"), pa.scalar(WITHOUT_PAYLOAD)), whole.column("payload").is_null()
        ).to_numpy(zero_copy_only=False)
        parts, kept = [whole.filter(pa.array(~left_out))], np.flatnonzero(~left_out).tolist()
        for at in np.flatnonzero(left_out).tolist():
            found = self._fetch(columns.slice(at, 1).to_pylist()[0])
            if found is not None:
                counter = whole.slice(at, 1).column("replays")
                parts.append(found.append_column("replays", counter).select(whole.schema.names).cast(whole.schema))
                kept.append(at)
        table = pa.Table.from_batches(parts).combine_chunks()
        made = table.to_batches()[0] if table.num_rows else whole.slice(0, 0)
        places: Any = pa.array(kept, pa.int64())
        partitions = columns.column("origin_partition").take(places).fill_null(0)
        order = np.lexsort(
            (columns.column("origin_offset").take(places).fill_null(0).to_numpy(), partitions.to_numpy())
        )
        out = replay(made) if max_replays else _drop_metadata(made)
        restored = out.add_column(0, COPY_SCHEMA.field(0), partitions).take(cast("Any", pa.array(order)))
        return restored, [kept[at] for at in order.tolist()]

    def _fetch(self, letter: dict[str, Any]) -> pa.RecordBatch | None:
        """Read the original of a dead letter without payload from its topic; None if it is not there any more."""
        partition, offset = letter["origin_partition"], letter["origin_offset"]
        if partition is None or offset is None:
            return None
        options: dict[str, Any] = {
            "start": {partition: offset}, "end": {partition: offset + 1}, "timeout_s": 0, "verify_checksum": False,
            "on_loss": "skip",
        }  # fmt: skip
        try:
            with Consumer(self._url, letter["origin_topic"], **options, **self._transport) as consumer:
                for batch in consumer.batches(READ):
                    found = batch.filter(pc.equal(batch.column("offset"), pa.scalar(offset, pa.int64())))
                    if found.num_rows:
                        return found
        except Unreachable:
            raise
        except LadingError:
            # no such topic, partition or offset any more, or never one of that name
            return None
        return None

    def _identities_of(self, batch: pa.RecordBatch) -> list[MessageIdentity]:
        times: Any = batch.column("timestamp").cast(pa.int64()).to_pylist()
        columns: Any = (batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), times)
        return [(self._topic, *place) for place in zip(*columns, strict=True)]

    def _open_ledger(self, *, create: bool) -> Ledger | None:
        if not create and not (self._state / OWN / "pipeline.json").exists():
            return None
        return Ledger(PipelineStateDirectory.open(self._state, f"dead letters of {self._topic} at {self._url}"))


def _restore_originals(batch: pa.RecordBatch, columns: pa.RecordBatch) -> pa.RecordBatch:
    """Return the original messages of dead letters: with their own time, without the headers of dead letters."""
    held = {name: batch.column(name) for name in SCHEMA.names}
    replays = replays_of(batch.column("headers"))
    held["key"] = restore_keys(batch, columns.column("convention"))
    held["headers"] = strip(batch.column("headers"), columns.column("convention"))
    # a number of milliseconds outside the range of message times counts as absent
    origin_ms: Any = columns.column("origin_timestamp_ms")
    # the least 64-bit number has no absolute value
    most, least = pa.scalar(ORIGIN_MS_MAX), pa.scalar(-ORIGIN_MS_MAX)
    is_within = pc.and_(pc.less_equal(origin_ms, most), pc.greater_equal(origin_ms, least))
    origin_ms = pc.if_else(is_within, origin_ms, pa.scalar(None, pa.int64()))
    time_type = SCHEMA.field("timestamp").type
    held["timestamp"] = pc.coalesce(
        pc.multiply(origin_ms, 1000).cast(pa.timestamp("us")).cast(time_type), held["timestamp"]
    )
    schema = SCHEMA.append(pa.field("replays", pa.int32()))
    return pa.RecordBatch.from_arrays([*(held[name] for name in SCHEMA.names), replays], schema=schema)


def _drop_metadata(messages: pa.RecordBatch) -> pa.RecordBatch:
    fields = list(COPY_SCHEMA)[1:]
    return pa.RecordBatch.from_arrays(
        [messages.column(field.name).cast(field.type) for field in fields], schema=pa.schema(fields)
    )
