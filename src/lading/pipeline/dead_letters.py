"""Dead letters of others: the headers by which frameworks say what failed, as typed columns, by one table of names."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..columns.contract import Encoding, HeaderColumn, Projection
from ..columns.locate import Entries, locate
from ..columns.rewrite import with_headers
from ..columns.typed import convert_column
from ..filter.filter import Filter
from ..filter.parse import parse
from ..model.batch import SCHEMA
from ..model.kinds import Kind

_COLUMNS: list[pa.Field[Any]] = [
    pa.field("convention", pa.string()), pa.field("origin_topic", pa.string()),
    pa.field("origin_partition", pa.int32()), pa.field("origin_offset", pa.int64()),
    pa.field("reason", pa.string()), pa.field("exception", pa.string()), pa.field("origin_group", pa.string()),
    pa.field("deliveries", pa.int32()), pa.field("origin_timestamp_ms", pa.int64()),
]  # fmt: skip
COLUMNS: Final = pa.schema(_COLUMNS)
"""Columns of a dead letter: its convention, its origin, what failed; null if that is unknown."""


@dataclass(frozen=True, slots=True)
class DeadLetterConvention:
    """The headers that one framework puts on a dead letter: its prefix, and the rest of the name of each column."""

    name: str
    prefix: str
    names: dict[str, str]
    mark: str = "origin_topic"
    """The column whose header distinguishes a dead letter from other messages."""
    more: tuple[str, ...] = ()
    """Other headers that the framework adds, and prefixes (which end in ``-``) of others."""
    message_key: str | None = None
    """The header with the key of the original, if the framework may send its dead letter without a key."""
    other_names: dict[str, str] = field(default_factory=dict)
    """Whole names of headers that hold a column in some releases."""
    other_marks: tuple[str, ...] = ()
    """Full names of further headers that every dead letter has; set if the first header's name is in use elsewhere
    too."""
    addresses: tuple[str, ...] = ()
    """Columns whose header is an address, ``loopback://localhost/kafka/orders``, of which they are the last name."""
    is_prefix_own: bool = True
    """Whether every header with the prefix is the framework's."""

    def key(self, column: str) -> str | None:
        """Return the header that holds a column, or None if the convention has none."""
        rest = self.names.get(column)
        return None if rest is None else self.prefix + rest

    def owns(self, key: str) -> bool:
        """Return whether a header is one that the framework added."""
        if self.is_prefix_own and key.startswith(self.prefix):
            return True
        named = key in (self.key(column) for column in self.names) or key in self.more
        return named or key.startswith(tuple(one for one in self.more if one.endswith("-")))


CONVENTIONS: Final = (
    DeadLetterConvention("Kafka Connect", "__connect.errors.", {
        "origin_topic": "topic", "origin_partition": "partition", "origin_offset": "offset",
        "reason": "exception.message", "exception": "exception.class.name", "origin_group": "connector.name",
    }),
    DeadLetterConvention("Kafka Streams", "__streams.errors.", {
        "origin_topic": "topic", "origin_partition": "partition", "origin_offset": "offset",
        "reason": "message", "exception": "exception",
    }),
    DeadLetterConvention("share group", "__dlq.errors.", {
        "origin_topic": "topic", "origin_partition": "partition", "origin_offset": "offset",
        "reason": "message", "origin_group": "group", "deliveries": "delivery.count",
    }),
    DeadLetterConvention("Spring", "kafka_dlt-", {
        "origin_topic": "original-topic", "origin_partition": "original-partition", "origin_offset": "original-offset",
        "reason": "exception-message", "exception": "exception-fqcn", "origin_group": "original-consumer-group",
        "origin_timestamp_ms": "original-timestamp",
    }),
    DeadLetterConvention("Spring retry topics", "kafka_", {
        "origin_topic": "original-topic", "origin_partition": "original-partition", "origin_offset": "original-offset",
        "reason": "exception-message", "exception": "exception-fqcn", "origin_group": "original-consumer-group",
        "origin_timestamp_ms": "original-timestamp",
    }, more=("kafka_original-", "kafka_exception-", "kafka_key-exception-", "kafka_dlt-", "retry_topic-"),
       other_names={"origin_group": "kafka_dlt-original-consumer-group"}, is_prefix_own=False),
    DeadLetterConvention("Redpanda Connect", "", {
        "origin_topic": "kafka_topic", "origin_partition": "kafka_partition", "origin_offset": "kafka_offset",
        "reason": "fallback_error", "origin_timestamp_ms": "kafka_timestamp_ms",
    }, mark="reason", more=("kafka_key", "kafka_lag", "kafka_timestamp_unix", "kafka_tombstone_message"),
       message_key="kafka_key", is_prefix_own=False),
    DeadLetterConvention("Spring Cloud Stream", "x-", {
        "origin_topic": "original-topic", "origin_partition": "original-partition", "origin_offset": "original-offset",
        "reason": "exception-message", "exception": "exception-fqcn", "origin_timestamp_ms": "original-timestamp",
    }, more=("x-original-", "x-exception-"), is_prefix_own=False),
    DeadLetterConvention("SmallRye", "dead-letter-", {
        "origin_topic": "topic", "origin_partition": "partition", "origin_offset": "offset",
        "reason": "reason", "exception": "exception-class-name",
    }),
    DeadLetterConvention("Karafka", "source_", {
        "origin_topic": "topic", "origin_partition": "partition", "origin_offset": "offset",
        "origin_group": "consumer_group", "deliveries": "attempts",
    }, more=("source_trace_id",), other_marks=("source_partition", "source_offset", "source_consumer_group"),
       is_prefix_own=False),
    DeadLetterConvention("Karafka before 2.5", "original_", {
        "origin_topic": "topic", "origin_partition": "partition", "origin_offset": "offset",
        "origin_group": "consumer_group", "deliveries": "attempts",
    }, other_marks=("original_partition", "original_offset", "original_consumer_group"), is_prefix_own=False),
    DeadLetterConvention("Watermill", "", {
        "origin_topic": "topic_poisoned", "reason": "reason_poisoned", "origin_group": "handler_poisoned",
    }, mark="reason", more=("subscriber_poisoned",), is_prefix_own=False),
    DeadLetterConvention("MassTransit", "MT-", {
        "origin_topic": "Fault-InputAddress", "reason": "Fault-Message", "exception": "Fault-ExceptionType",
    }, mark="exception", more=("MT-Reason", "MT-Fault-"), addresses=("origin_topic",), is_prefix_own=False),
    DeadLetterConvention("Wolverine", "", {
        "reason": "exception-message", "exception": "exception-type",
    }, mark="exception", more=("exception-stack", "failed-at"), other_marks=("failed-at",), is_prefix_own=False),
)  # fmt: skip
"""Kafka Connect's DeadLetterQueueReporter, KIP-1034, KIP-1191, Spring Kafka's DeadLetterPublishingRecoverer, with the
names of its DLT_ constants and, for retry topics (@RetryableTopic), of the others; Redpanda Connect's output
``fallback`` with a Kafka input, if its metadata is sent as headers; the Kafka binder of Spring Cloud Stream; SmallRye's
Kafka connector, which Quarkus has; Karafka Pro's enhanced dead letters (others have no headers), whose
names began with ``original_`` before 2.5; Watermill's middleware
PoisonQueue; MassTransit's error pipe; Wolverine's native dead letter topics, which name no origin.

Numbers are texts, but for Spring, whose numbers are big-endian; those who imitate it write texts too.
"""
HEADER_TYPES: Final[dict[str, str]] = {
    key: {"int32": "int", "int64": "bigint"}.get(str(column.type), "string")
    for one in CONVENTIONS
    for column in COLUMNS
    if (key := one.key(column.name)) is not None and not one.name.startswith("Spring")
}
"""The column type of each header whose numbers are texts."""
_HIDDEN: Final = "lading.dead_letter."
"""Prefix of the headers that stand for the columns while a filter is evaluated."""
CONTRACT: Final = Projection(
    headers=tuple(HeaderColumn(column.name, _HIDDEN + column.name, column.type) for column in COLUMNS)
)
"""The names that a filter has for the columns."""


def recognize(headers: pa.Array[Any]) -> pa.RecordBatch:
    """Return COLUMNS for each list of headers; all null for a message that is not a dead letter.

    A message that was a dead letter of several has what the last one put there.
    """
    entries = Entries.of(headers)
    last = np.stack([_last_mark(entries, one) for one in CONVENTIONS])
    chosen = np.where(last.max(axis=0) < 0, -1, last.argmax(axis=0))
    made: dict[str, Any] = {column.name: pa.nulls(entries.rows, column.type) for column in COLUMNS}
    for number, one in enumerate(CONVENTIONS):
        mine = chosen == number
        if not mine.any():
            continue
        mask = pa.array(mine)
        made["convention"] = pc.if_else(mask, pa.scalar(one.name), made["convention"])
        for column in COLUMNS:
            if (key := one.key(column.name)) is not None:
                read: Any = _read(headers, key, column.type)
                if column.name in one.addresses:
                    read = _last_name(read)
                if (other := one.other_names.get(column.name)) is not None:
                    read = pc.coalesce(read, _read(headers, other, column.type))
                made[column.name] = pc.if_else(mask, read, made[column.name])
    return pa.RecordBatch.from_arrays([made[name] for name in COLUMNS.names], schema=COLUMNS)


def strip(headers: pa.Array[Any], conventions: pa.Array[Any]) -> pa.Array[Any]:
    """Return the headers as they were before: without those of the convention that each message has."""
    before, made = headers, headers
    keys: list[Any] = pc.unique(Entries.of(before).key_array).to_pylist()
    held: Any = conventions
    for one in CONVENTIONS:
        mine = pc.equal(held, pa.scalar(one.name)).fill_null(False)
        drop = [key for key in keys if one.owns(key)]
        if drop and pc.any(mine).as_py():
            without: Any = with_headers(before, {}, {}, drop=drop)
            made = without if pc.all(mine).as_py() else _choose(mine, without, made)
    return made


def restore_keys(batch: pa.RecordBatch, conventions: pa.Array[Any]) -> pa.Array[Any]:
    """Return the keys of the originals: those of the dead letters, or else the value of the header for it."""
    keys: Any = batch.column("key")
    held: Any = conventions
    for one in CONVENTIONS:
        if one.message_key is not None:
            values: Any = convert_column(
                locate(batch.column("headers"), [one.message_key])[one.message_key], pa.binary()
            )[0]
            mine = pc.and_(pc.equal(held, pa.scalar(one.name)).fill_null(False), keys.is_null())
            keys = pc.if_else(mine, values, keys)
    return cast("pa.Array[Any]", keys)


def parse_filter(where: str) -> Filter:
    """Return a condition over dead letters: their columns by name, message fields, and other headers."""
    return parse(where, CONTRACT, closed=False)


def list_columns_of(keys: Collection[str]) -> frozenset[str]:
    """Return the headers by which a condition of ``parse_filter`` reads columns, if one of ``keys`` holds columns."""
    is_owned = any(one.owns(key) for key in keys for one in CONVENTIONS)
    return frozenset(column.header for column in CONTRACT.headers) if is_owned else frozenset()


def select(condition: Filter, messages: pa.RecordBatch, columns: pa.RecordBatch) -> pa.BooleanArray:
    """Return which messages satisfy a condition of ``parse_filter``; ``columns`` are those of ``recognize``."""
    added = {_HIDDEN + name: columns.column(name).cast(pa.string()) for name in COLUMNS.names}
    headers = with_headers(messages.column("headers"), added, dict.fromkeys(added, Kind.STRING), drop=added)
    held = {name: messages.column(name) for name in SCHEMA.names} | {"headers": headers}
    return condition.selects(pa.RecordBatch.from_arrays([held[name] for name in SCHEMA.names], schema=SCHEMA))


def describe_conventions() -> str:
    """Return each framework with the header by which its dead letters are recognised."""
    return ", ".join(f"{one.key(one.mark)} ({one.name})" for one in CONVENTIONS)


def _last_mark(entries: Entries, convention: DeadLetterConvention) -> NDArray[Any]:
    """Return the index of the header that marks a dead letter in each list of headers; -1 if it is not one."""
    last = entries.last(convention.key(convention.mark) or "")
    for key in convention.other_marks:
        last = np.where(entries.last(key) < 0, -1, last)
    return last


def _last_name(addresses: Any) -> Any:
    """Return the topic of ``HOST/kafka/TOPIC/GROUP``, or the last name of another address."""
    of_kafka = pc.struct_field(pc.extract_regex(addresses, r"/kafka/(?P<topic>[^/?]+)"), "topic")
    last = pc.struct_field(pc.extract_regex(addresses, r"(?P<topic>[^/?]+)/?(?:[?].*)?$"), "topic")
    return pc.coalesce(of_kafka, last)


def _read(headers: pa.Array[Any], key: str, type_: pa.DataType) -> pa.Array[Any]:
    located = locate(headers, [key])[key]
    array, bad = convert_column(located, type_)
    if bad is None or type_ == pa.string():
        return array
    binary: Any = convert_column(located, type_, Encoding.BE)[0]
    return cast("pa.Array[Any]", pc.coalesce(array, binary))


def _choose(mask: Any, yes: Any, no: Any) -> Any:
    """Return lists of ``yes`` for rows whose ``mask`` is true, else of ``no``."""
    rows = len(no)
    places: NDArray[np.int64] = np.arange(rows) + np.where(mask.to_numpy(zero_copy_only=False), 0, rows)
    return pa.concat_arrays([yes, no]).take(pa.array(places))
