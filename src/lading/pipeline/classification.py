"""Classification of messages in bulk by contract, checksum and routes, in Arrow, without Python per row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..columns.assemble import Assembled, assemble
from ..columns.contract import ARRAY, Encoding
from ..columns.dictionary_encoding import REPEATING
from ..columns.instants import drop_unreadable_times
from ..filter.values import Messages, TypedHeaders
from ..model.run import Decoded
from ..payloads.layout import VERDICT_MISMATCH, VERDICT_UNKNOWN
from ..transports.checksums import mismatches
from .plan import Plan
from .ready_contracts import open_structured_events

_PAYLOAD_REASONS = ("payload_malformed", "schema_unknown", "schema_mismatch")
ABSENT, NULL = -1, -2
"""Lengths of located values that have no bytes."""


@dataclass(frozen=True, slots=True)
class ClassifiedBatch:
    """Some messages, each with its failure or its destination.

    ``batch`` has the columns of the plan's projection. For each message ``failure`` is the index of its failure among
    those of the plan, -1 if it has none; ``destination`` the index of its destination, -1 if it failed a check. A
    route to quarantine gives both. ``violations`` is for each expectation the number of messages that passed the
    contract and for which it does not hold.
    """

    batch: pa.RecordBatch
    failure: NDArray[np.int16]
    destination: NDArray[np.int16]
    violations: tuple[int, ...] = ()
    details: Mapping[int, str] = field(default_factory=dict)
    """The sentence of each message with a malformed payload, by its row: it names the byte."""

    @property
    def failed(self) -> bool:
        """Whether any of the messages failed."""
        return bool((self.failure >= 0).any())


def classify_messages(plan: Plan, decoded: Decoded, place: Mapping[str, str | int]) -> ClassifiedBatch:
    """Check every message and assign the first destination whose condition is true for it; null counts as false.

    An expectation that is null for a message does not hold for it either.
    """
    if plan.has_events:
        decoded = open_structured_events(decoded)
    made = assemble(decoded, plan.projection, place, REPEATING)
    failure = np.full(decoded.count, -1, np.int16)
    for at, rows in enumerate(_find_failing(plan, decoded, made)):
        if rows is not None:
            failure[(failure < 0) & rows] = at
    destination = np.full(decoded.count, -1, np.int16)
    messages = Messages(decoded, _take_typed_headers(plan, made), form=plan.contract.form)
    violations = _expect(plan, messages, failure) if plan.expectations else ()
    waiting = failure < 0
    for at, one in enumerate(plan.destinations):
        if not waiting.any():
            break
        taken = waiting if one.filter is None else waiting & _to_mask(one.filter.selects(messages))
        destination[taken] = at
        if one.failure is not None:
            failure[taken] = one.failure
        waiting = waiting & ~taken
    return ClassifiedBatch(made.batch, failure, destination, violations, _describe_malformed(plan, made, failure))


def _describe_malformed(plan: Plan, made: Assembled, failure: NDArray[np.int16]) -> dict[int, str]:
    walked = made.walked
    if walked is None or not walked.malformed.any():
        return {}
    reasons = [at for at, one in enumerate(plan.failures) if one.reason in _PAYLOAD_REASONS]
    return {row: f"the payload {walked.describe(row)}" for row in np.flatnonzero(np.isin(failure, reasons)).tolist()}


def _expect(plan: Plan, messages: Messages, failure: NDArray[np.int16]) -> tuple[int, ...]:
    """Return for each expectation how many messages violate it; those that go to quarantine get their ``failure``.

    Every expectation looks at all messages that passed the contract, so that no count depends on another expectation.
    """
    passed, counts = failure < 0, []
    for one in plan.expectations:
        violating = passed & ~_to_mask(one.filter.selects(messages))
        counts.append(int(np.count_nonzero(violating)))
        if one.failure is not None and counts[-1]:
            failure[violating & (failure < 0)] = one.failure
    return tuple(counts)


def _take_typed_headers(plan: Plan, made: Assembled) -> TypedHeaders:
    """Return the headers that routes need not convert again, because the contract declares them with the same type."""
    headers: TypedHeaders = {
        (column.header, column.type, column.encoding): (made.batch.column(column.name), made.bad.get(column.name))
        for column in plan.contract.headers
        if column.type != ARRAY
    }
    return headers | {
        (column.path, column.type, Encoding.AUTO): (made.batch.column(column.name), made.bad.get(column.name))
        for column in plan.contract.payload
        if not column.json
    }


def _find_failing(plan: Plan, decoded: Decoded, made: Assembled) -> Iterator[NDArray[np.bool_] | None]:
    """Yield for each failure of the plan, in order, a mask of the messages that have it; None if no message can."""
    for column in plan.contract.headers:
        if column.required:
            length = decoded.located[column.header].length
            lacking = bool((length < 0).any())
            yield length == ABSENT if lacking else None
            yield length == NULL if lacking else None
        flags = made.bad.get(column.name)
        yield None if flags is None else _to_mask(flags)
        if column.constraint is not None:
            yield from column.constraint.find_breaches(made.batch.column(column.name))
    for name in plan.contract.texts:
        flags = made.bad.get(name)
        yield None if flags is None else _to_mask(flags)
    yield from _failing_payloads(plan, made)
    if plan.require_timestamp:
        unreadable = drop_unreadable_times(decoded.columns["timestamp"])[1]
        yield None if unreadable is None else _to_mask(unreadable)
    if plan.verify_checksum:
        wrong = mismatches(decoded.columns["payload"], decoded.columns["checksum"])
        if not wrong.size:
            yield None
            return
        rows = np.zeros(decoded.count, np.bool_)
        rows[wrong] = True
        yield rows


def _failing_payloads(plan: Plan, made: Assembled) -> Iterator[NDArray[np.bool_] | None]:
    """Yield the same for the payload and its columns. A message without a payload lacks no value in it."""
    walked = made.walked
    if walked is None:
        return
    if plan.contract.form.has_schema:
        unknown, mismatch = walked.find(VERDICT_UNKNOWN), walked.find(VERDICT_MISMATCH)
        yield walked.malformed & ~unknown & ~mismatch
        yield unknown
        yield mismatch
    else:
        yield walked.malformed
    for column in plan.contract.payload:
        values = walked.values[column.path]
        if column.required:
            complete = walked.find_complete(column.path)
            yield values.absent & complete
            yield values.null & complete
        flags = made.bad.get(column.name)
        yield None if flags is None else _to_mask(flags)
        if column.constraint is not None:
            yield from column.constraint.find_breaches(made.batch.column(column.name))


def _to_mask(array: pa.BooleanArray) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = array.to_numpy(zero_copy_only=False)
    return mask
