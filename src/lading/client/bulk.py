"""The bulk form: topics read and written as Arrow tables, without a Python object per message."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from ..columns.contract import FIELD_TYPES
from ..columns.instants import drop_unreadable_times, unreadable_times_sentence
from ..model.errors import LocalError, SettingError
from ..payloads.form import KINDS
from ..payloads.paths import Path
from ..transports.fetched import States
from ..transports.interface import Transport
from ..transports.topic_selection import TopicSelection
from .arguments import open_for
from .header_columns import Nulls, header_names, headers_of
from .outgoing import as_field, complete
from .payload_columns import FORMATS, check_payload_columns, encode_payloads, parse_payload_columns
from .producer import Producer
from .read_bounds import Bound, ReadBounds, spans
from .reading import OnLoss, PartitionReader, Selection, columns_text
from .unseen import DeclaredHeaders

LOG: Final = logging.getLogger("lading.client")
FETCH_BYTES = 4 << 20
WRITE_ROWS = 32_768
"""Rows that are converted to headers together: enough for the kernels, few enough for the CPU's cache."""


def read_arrow(
    url: str | Transport,
    topic: str | None = None,
    columns: str | Sequence[str] | None = None,
    *,
    topics: Sequence[str] = (),
    topic_pattern: str | None = None,
    where: str | None = None,
    states: States = "available",
    start: Bound = "earliest",
    end: Bound = "latest",
    limit: int | None = None,
    verify_checksum: bool = True,
    on_loss: OnLoss = "fail",
    payload: Mapping[str, str] | None = None,
    **options: Any,
) -> pa.Table:
    """Return the messages of a topic, or of several, as a table: by topic and partition, in offset order within each.

    Several topics are named by ``topics``, or their whole names match the regular expression ``topic_pattern``; the
    columns ``stream``, ``topic`` and ``partition`` say which one a message is of.

    ``columns`` names message fields and typed headers, ``"offset, carrier string, delay int"``
    (docs/reference/contract), or is a list of such parts; without it the table has the Batch schema. ``start``,
    ``end``, ``where`` and ``states`` are those of Consumer; by default reading ends at the present end of the topic.
    ``limit`` bounds the rows. ``payload`` says how to read payloads whose members are columns, by the keys of
    ``[payload]`` in a contract: ``{"format": "avro", "schema": "order.avsc"}``. Values that cannot be read as the
    declared type are null, and so is a timestamp outside the years 1 to 9999, which the log mentions once. Warns of a
    header that no message has. Other ``options`` go to the transport.
    """
    if limit is not None and limit < 0:
        raise SettingError(f"limit is 0 or more, not {limit}")
    selection = Selection.parse(columns_text(columns), where, states, verify_checksum, on_loss, payload)
    transport = open_for(read_arrow, url, options)
    wanted = select_topics(topic, topics, topic_pattern)
    found = list(read_selection(transport, wanted, selection, start, end, limit, stacklevel=3))
    timeless = any("timestamp" in batch.schema.names and batch.column("timestamp").null_count for batch in found)
    schema = _allow_null_times(selection.schema) if timeless else selection.schema
    return pa.Table.from_batches([_under_schema(batch, schema) for batch in found], schema).slice(0, limit)


def read_batches(
    url: str | Transport,
    topic: str | None = None,
    columns: str | Sequence[str] | None = None,
    *,
    topics: Sequence[str] = (),
    topic_pattern: str | None = None,
    where: str | None = None,
    states: States = "available",
    start: Bound = "earliest",
    end: Bound = "latest",
    verify_checksum: bool = True,
    on_loss: OnLoss = "fail",
    payload: Mapping[str, str] | None = None,
    **options: Any,
) -> pa.RecordBatchReader:
    """Return the messages of a topic as a reader of batches, for Polars, DuckDB and other readers of Arrow.

    The arguments are those of ``read_arrow``. Messages are fetched while the reader is read, a few megabytes at a time,
    so that memory does not depend on the size of the topic. The reader can be read once.
    """
    selection = Selection.parse(columns_text(columns), where, states, verify_checksum, on_loss, payload)
    transport = open_for(read_batches, url, options)
    wanted = select_topics(topic, topics, topic_pattern)
    return make_reader(selection, read_selection(transport, wanted, selection, start, end, None, stacklevel=2))


def make_reader(selection: Selection, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    """Return batches of ``selection`` as a reader, whose timestamps may be null."""
    schema = reader_schema(selection)
    return pa.RecordBatchReader.from_batches(schema, (_under_schema(batch, schema) for batch in batches))


def reader_schema(selection: Selection) -> pa.Schema:
    """Return the schema of ``make_reader``."""
    return _allow_null_times(selection.schema)


def select_topics(topic: str | None, topics: Sequence[str], pattern: str | None) -> TopicSelection:
    """Return the topics of a call. Raises SettingError unless one argument selects them."""
    given = [name for name, value in (("topic", topic), ("topics", topics), ("topic_pattern", pattern)) if value]
    if len(given) > 1:
        raise SettingError(f"{' and '.join(given)}: both select topics; give one of them")
    # an empty name is refused by the transport
    return TopicSelection.parse(topics or [topic or ""], pattern or None)


def read_selection(
    transport: Transport,
    wanted: TopicSelection,
    selection: Selection,
    start: Bound,
    end: Bound,
    limit: int | None,
    *,
    stacklevel: int,
    clip: Callable[[Iterable[ReadBounds]], Iterable[ReadBounds]] = iter,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches, partition after partition, until there are ``limit`` rows; closes the transport.

    ``clip`` returns the part to read between the bounds ``start`` and ``end``.
    """
    declared = DeclaredHeaders(selection)
    rows = unreadable_times = 0
    try:
        metas = [transport.topic(*wanted.names)] if len(wanted.names) == 1 else wanted.find(transport)
        if not metas:
            raise wanted.nothing_found_error(transport)
        begun = spans(transport, metas, start, end).values()
        for span in clip(begun):
            reader = PartitionReader(
                transport, span.meta, span.partition, span.offset, end=span.end, sure=span.sure, max_bytes=FETCH_BYTES
            )
            while not reader.done and (limit is None or rows < limit):
                before = reader.position
                batches = reader.read(selection)
                for batch in batches:
                    declared.add(batch)
                    rows += batch.num_rows
                    if "timestamp" in batch.schema.names:
                        batch = _without_unreadable_times(batch)
                        unreadable_times += batch.column("timestamp").null_count
                    yield batch
                if reader.position == before and not batches:
                    break
        if unreadable_times:
            LOG.warning("%s: %s", wanted, unreadable_times_sentence(unreadable_times, "the result"))
        if limit != 0:
            shown = wanted.pattern or ", ".join(wanted.names)
            declared.warn_looking_at(transport, begun, shown, stacklevel=stacklevel)
    finally:
        transport.close()


def _allow_null_times(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) if field.name == "timestamp" else field for field in schema])


def _under_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns with the field names and null flags of ``schema``."""
    return batch if batch.schema == schema else pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _without_unreadable_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    at = batch.schema.get_field_index("timestamp")
    times, unreadable = drop_unreadable_times(batch.column(at))
    if unreadable is None:
        return batch
    columns = [*batch.columns[:at], times, *batch.columns[at + 1 :]]
    return pa.RecordBatch.from_arrays(columns, schema=_allow_null_times(batch.schema))


def write_arrow(
    table: pa.Table | pa.RecordBatch,
    url: str | Transport,
    topic: str,
    *,
    headers: Sequence[str] | Mapping[str, str] | None = None,
    key: str | None = None,
    payload: str | None = None,
    payload_format: str | None = None,
    payload_columns: Sequence[str] | Mapping[str, str] | None = None,
    schema: str | None = None,
    message: str = "",
    registry: str | None = None,
    subject: str | None = None,
    subject_strategy: str | None = None,
    timestamp: str | None = None,
    nulls: Nulls = "null",
    partition: int | None = None,
    **options: Any,
) -> int:
    """Send each row as a message; return how many, after all are acknowledged.

    ``headers`` names the columns that become headers (a mapping is header key → column); their Arrow types choose the
    kinds (docs/reference/python-api). Without it a ``headers`` column in the Batch schema is sent unchanged; with an
    empty list messages have no headers. ``key``, ``payload`` and ``timestamp`` name columns too; by default the columns
    of these names, if the table has them. With ``payload_format="json"`` the payload is an object of
    ``payload_columns``, names or a mapping of path to column (``{"order.amount": "amount"}``); by default of all
    remaining columns. With ``"avro"`` and ``"protobuf"`` it is encoded by ``schema``, a file, its text, or a subject of
    ``registry``, the URL of a schema registry; with a registry payloads begin with the id of the schema, and one of a
    file is registered as ``subject``, by default ``TOPIC-value``, or by a ``subject_strategy``: ``"TOPIC"``,
    ``"RECORD"`` or ``"TOPIC_RECORD"``. ``message`` is the message type of payloads in a .proto file, by default its
    first. ``nulls`` says whether a null becomes a null header or no header. Other ``options`` go to Producer, which
    creates a missing topic.
    """
    if not isinstance(table, (pa.Table, pa.RecordBatch)):
        raise LocalError(
            f"write_arrow: the first argument is a {type(table).__name__}, not a table or batch of Arrow; call "
            "write_arrow(table, url, topic), with pa.table(…) of rows in another form"
        )
    parts = table if isinstance(table, pa.Table) else pa.Table.from_batches([table])
    chosen = {
        name: column or name
        for name, column in (("key", key), ("payload", payload), ("timestamp", timestamp))
        if column is not None or name in parts.schema.names
    }
    named = None if headers is None else header_names(headers)
    wanted = [*chosen.values(), *(named or {}).values()]
    if payload_format is not None:
        chosen.pop("payload", None)
    members = _find_members(parts.schema, payload, payload_format, payload_columns, wanted)
    encode = _find_encoder(
        payload_format, schema, topic, registry=registry, subject=subject, subject_strategy=subject_strategy,
        message=message,
    )  # fmt: skip
    missing = next((name for name in wanted if name not in parts.schema.names), None)
    if missing is not None:
        raise LocalError(f"column {missing!r} does not exist; the table has {', '.join(parts.schema.names)}")
    if named is None and "headers" in parts.schema.names:
        chosen["headers"] = "headers"
    if not chosen and not named and not members:
        if "value" in parts.schema.names:
            raise LocalError("no columns selected; the payload is called value: pass payload='value'")
        raise LocalError("no columns selected; pass headers=[...], payload=... or key=...")

    def messages() -> Iterator[pa.RecordBatch]:
        for batch in parts.to_batches(max_chunksize=WRITE_ROWS):
            made = {name: as_field(batch.column(column), column, name) for name, column in chosen.items()}
            if named:
                made["headers"] = headers_of(batch, named, nulls)
            if members:
                made["payload"] = encode_payloads(batch, members, nulls, payload_format or "json", encode)
            yield complete(batch.num_rows, made)

    with Producer(url, **options) as producer:
        return producer.send_batches(topic, messages(), partition=partition)


def _find_encoder(
    payload_format: str | None,
    schema: str | None,
    topic: str,
    *,
    registry: str | None,
    subject: str | None,
    subject_strategy: str | None,
    message: str,
) -> Callable[[bytes], bytes] | None:
    """Return the function that encodes payloads by a schema; None for a format without one."""
    if payload_format in (None, "json"):
        given = {
            "schema": schema, "registry": registry, "subject": subject, "subject_strategy": subject_strategy,
            "message": message,
        }  # fmt: skip
        if named := next((name for name, value in given.items() if value), None):
            raise SettingError(f"{named} is for payloads with a schema; pass payload_format='avro' or 'protobuf'")
        return None
    if schema is None:
        raise SettingError(f"payload_format {payload_format!r} needs a schema; pass schema, a file or a subject")
    from ..registry.payload_encoder import find_writer_schema

    return find_writer_schema(
        schema, topic, kind=KINDS[payload_format or ""], registry=registry, subject=subject,
        subject_strategy=subject_strategy, message=message, option="schema",
    ).make_encoder()  # fmt: skip


def _find_members(
    schema: pa.Schema,
    payload: str | None,
    payload_format: str | None,
    columns: Sequence[str] | Mapping[str, str] | None,
    used: Sequence[str],
) -> dict[Path, str]:
    """Return the column of each member of the payload; empty without a format. ``used`` columns are other parts of
    messages.
    """
    if payload_format is None:
        if columns is not None:
            raise SettingError("payload_columns needs a format; pass payload_format='json'")
        return {}
    if payload_format not in FORMATS:
        raise SettingError(f"payload_format is {payload_format!r}; it takes {', '.join(FORMATS)}")
    if payload is not None:
        raise SettingError("payload and payload_format both make the payload; leave one out")
    if columns is None:
        spare = [name for name in schema.names if name not in (*used, *FIELD_TYPES)]
        members: dict[Path, str] = {(name,): name for name in spare}
    else:
        members = parse_payload_columns(columns)
    if not members:
        raise SettingError("payload_format: there are no columns for the payload; name them by payload_columns")
    check_payload_columns(schema, members)
    return members
