"""A batch on its way to a foreign server: completed, and with carriers for facts that the server cannot hold."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from ..model.batch import ORIGIN_TIMESTAMP, SCHEMA, schema_of_fields
from ..model.errors import LimitExceeded, LocalError
from .interface import BoundedTransport, Transport

if TYPE_CHECKING:
    import pyarrow as pa

    from ..model.protocol import Capabilities, MessageBound


class MessageRefused(LimitExceeded):
    """A topic refused one message because of its content, and would refuse it again; the others can be sent without it.

    ``row`` is its row in the messages of the call, None if the server does not say which message it is. If the call
    sent to several partitions, ``partition`` is the message's own and ``row`` counts the messages sent to it.
    """

    def __init__(self, message: str, *, partition: int | None = None, row: int | None = None) -> None:
        super().__init__(message)
        self.partition = partition
        self.row = row


class MessageTooLarge(MessageRefused):
    """A topic refused a message for its size; ``bound`` is the topic's limit, if it is known."""

    def __init__(
        self, message: str, bound: MessageBound, *, partition: int | None = None, row: int | None = None
    ) -> None:
        super().__init__(message, partition=partition, row=row)
        self.bound = bound


def fill_missing_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with all columns of the Batch schema; ``offset``, ``state`` and ``checksum`` are made anew.

    Origin times stay if any message has one: a column of nulls says nothing that a target could lose.
    """
    import numpy as np
    import pyarrow as pa

    rows = batch.num_rows
    given: set[str] = {name for name in ("timestamp", "id", "key", "headers", "payload") if name in batch.schema.names}
    if ORIGIN_TIMESTAMP in batch.schema.names and batch.column(ORIGIN_TIMESTAMP).null_count < rows:
        given.add(ORIGIN_TIMESTAMP)
    schema = schema_of_fields(given)

    def made(name: str) -> Any:
        if name in given:
            return batch.column(name)
        if name == "offset":
            return pa.array(np.arange(rows))
        if name == "state":
            return pa.array(np.ones(rows, np.int8))
        if name == "headers":
            return pa.array([[]], SCHEMA.field("headers").type).take(pa.array(np.zeros(rows, np.int64)))
        return pa.nulls(rows, SCHEMA.field(name).type)

    return pa.RecordBatch.from_arrays([made(name) for name in schema.names], schema=schema)


def fit_to_target(batch: pa.RecordBatch, target: Capabilities, system: str, *, strict: bool) -> pa.RecordBatch:
    """Return the batch as ``system`` can hold it, with carriers for facts that would be lost.

    Raises LimitExceeded for messages that even a carrier cannot bring across; with ``strict`` LocalError for messages
    that need one.
    """
    from ..dialects.carrier import carry
    from ..dialects.carrier.targets import cuts_times

    carried = carry(batch, target)
    if carried.unholdable:
        first = carried.unholdable[0]
        others = f" (and {len(carried.unholdable) - 1} more)" if len(carried.unholdable) > 1 else ""
        raise LimitExceeded(f"message {first.row} of the batch cannot be sent: {first.sentence}{others}")
    # a batch that was checked row by row is another object, even if every row fits
    if strict and (not carried.batch.equals(batch) or cuts_times(batch, target)):
        raise LocalError(
            f"{system} cannot hold every fact of these messages (see docs/reference/carrier.md); without strict=True "
            "they travel by carrier"
        )
    return carried.batch


def reduce_to_target(batch: pa.RecordBatch, target: Capabilities, *, headers: bool = True) -> pa.RecordBatch:
    """Return the batch as a plain reader of the target sees it: without carriers and without the facts that need one.

    Sending it needs no carrier. ``headers`` is False for a target whose messages have no headers. Times that the target
    does not accept become null.
    """
    import pyarrow as pa

    from ..dialects.carrier import carry
    from ..dialects.carrier.carry import without_carriers
    from ..dialects.carrier.rows import with_columns

    bare, _ = without_carriers(carry(batch, target))
    columns: dict[str, Any] = {}
    if not headers:
        columns["headers"] = fill_missing_columns(bare.batch.select(["payload"])).column("headers")
    if target.time_step_us is None:
        columns["timestamp"] = pa.nulls(batch.num_rows, SCHEMA.field("timestamp").type)
    return with_columns(bare.batch, columns) if columns else bare.batch


def capabilities_at(transport: Transport, topic: str) -> Capabilities:
    """Return what a message keeps in one topic, including the topic's own size limit."""
    found = transport.capabilities
    return replace(found, bound=transport.message_bound(topic)) if isinstance(transport, BoundedTransport) else found


def find_unholdable(batch: pa.RecordBatch, target: Capabilities) -> list[tuple[int, str]]:
    """Return the rows that not even a carrier brings into the target, each with a sentence that says why."""
    from ..dialects.carrier import carry

    return [(one.row, one.sentence) for one in carry(batch, target).unholdable]


def find_oversized(batch: pa.RecordBatch, target: Capabilities, skipped: Collection[int] = ()) -> list[tuple[int, str]]:
    """Return the rows above the topic's size limit, each with a sentence that says so; ``skipped`` rows are not
    measured.

    Messages that the target cannot hold have no size there, and must be in ``skipped``.
    """
    import numpy as np

    bound = target.bound
    if bound is None or target.measure is None:
        return []
    rows = np.delete(np.arange(batch.num_rows), sorted(skipped))
    measured = batch.take(rows) if skipped else batch
    found: list[tuple[int, int]] = resolve_name(target.measure)(measured, bound) if rows.size else []
    limit = f"the topic at most {bound.bytes_max} ({bound.setting})"
    return [(int(rows[at]), f"it takes {size_bytes} bytes there, and {limit}") for at, size_bytes in found]


def find_refused(batch: pa.RecordBatch, target: Capabilities) -> list[tuple[int, str]]:
    """Return the rows that the topic refuses in any form, in order, each with a sentence that says why."""
    found = find_unholdable(batch, target)
    return sorted([*found, *find_oversized(batch, target, [row for row, _ in found])])
