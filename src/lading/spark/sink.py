"""DataFrames into topics: rows become messages in Arrow, and a batch becomes visible once, whole or not at all.

The promises that a target can give are in ``client.delivery``: exactly once to a Lading broker, and to Kafka with a
transactional id; else at least once, with a header by which duplicates are found.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ..client.delivery import DeliveryTarget, SentByTask, Task, choose_commit_protocol
from ..client.header_columns import (
    ColumnHeader,
    check_kind,
    form_of,
    headers_of,
    headers_of_map,
    is_header_map,
    parse_column_header,
)
from ..client.outgoing import OUT_SCHEMA_WITH_ORIGIN, complete
from ..client.partitioning import KeyPartitioner, choose_key_partitioner, partitions_of
from ..client.payload_columns import check_payload_columns, encode_payloads, parse_payload_columns
from ..model.batch import HEADER_TYPE, ORIGIN_TIMESTAMP
from ..model.errors import LadingError, LocalError, SettingError
from ..payloads.form import KINDS
from ..payloads.paths import PAYLOAD, Path, write_path
from ..registry.payload_encoder import WriterSchema, find_writer_schema
from ..tables.plan.options import SinkOptions
from ..tables.scan.schema import with_field_names
from ..transports.interface import Transport
from ..transports.open import open_transport
from .types import arrow_schema
from .workers import freeze_modules

OWN = ("payload", "key", "timestamp", "headers", "id", ORIGIN_TIMESTAMP)
"""Columns that are parts of a message; the column ``partition`` chooses the partition it goes to."""
HEADER_FIELDS = [field.name for field in HEADER_TYPE]
READ_ONLY = ("stream", "topic", "offset", "state", "checksum")
"""Columns that reading adds and the target sets itself: ignored, so that a frame can be written as it was read."""
LOG = logging.getLogger("lading.spark")
Messages = list[WriterCommitMessage | None]


@dataclass(frozen=True)
class ColumnMapping:
    """Which column of a DataFrame becomes which part of a message."""

    fields: tuple[str, ...]
    headers: tuple[ColumnHeader, ...]
    partition: bool
    members: Mapping[Path, str] = field(default_factory=dict)
    """The column of each member of payloads."""
    format: str = "json"
    """The format of payloads."""
    writer: WriterSchema | None = None
    """The schema of payloads."""

    @classmethod
    def of(
        cls, schema: StructType, headers: tuple[str, ...], places: Mapping[str, str] | None = None,
        form: str = "json", writer: WriterSchema | None = None,
    ) -> ColumnMapping:  # fmt: skip
        """Return the mapping of a schema. Raises SettingError with the name of an unknown column or a wrong type.

        ``headers`` are the headers that columns become, each ``NAME[:KIND] [from COLUMN]``. With ``places``, paths by
        column, the remaining columns become members of the payload, at their path or by their name; ``form`` is its
        format, and ``writer`` its schema.
        """
        arrow = arrow_schema(schema)
        names = arrow.names
        declared = tuple(map(parse_column_header, headers))
        keys = [header.key for header in declared]
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            raise SettingError(f"option headers names the header {twice!r} twice; name each header once")
        used = [header.column for header in declared]
        missing = [name for name in used if name not in names]
        if missing:
            raise SettingError(
                f"headers names the column {missing[0]!r}, and there are {', '.join(names)}; correct the name"
            )
        if headers and "headers" in names:
            raise SettingError("the frame has a column headers, and option headers names others; drop one of the two")
        spare = [name for name in names if name not in (*OWN, *used, "partition", *READ_ONLY)]
        members: dict[Path, str] = {}
        if places is not None:
            members = _choose_members(arrow, spare, places, used)
        elif spare:
            if spare[0].lower() == "value":
                raise SettingError("column 'value' is not a part of a message; call it payload: value AS payload")
            raise SettingError(
                f"column {spare[0]!r} is not a part of a message ({', '.join(OWN)}, partition); to send it as a header "
                f'add it to .option("headers", "{spare[0]}"), or drop it'
            )
        for header in declared:
            form_of(header.column, arrow.field(header.column).type)
            if header.kind is not None:
                check_kind(header.column, arrow.field(header.column).type, header.kind)
        fields = tuple(name for name in OWN if name in names and name not in used)
        if members and PAYLOAD in fields:
            raise SettingError("the frame has a column payload, and payload.format makes another; drop one of the two")
        if not fields and not members and not headers:
            raise SettingError(f"nothing in {', '.join(names)} is a part of a message; name columns as headers")
        for name in fields:
            _check(name, arrow.field(name).type)
        if "headers" in fields and is_header_map(arrow.field("headers").type):
            LOG.warning("column 'headers' is a map, which has no order: headers are written in order of key")
        return cls(fields, declared, "partition" in names, members, form, writer)

    def batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the messages of some rows. Raises LocalError if a value cannot be part of a message."""
        made = {name: _convert_part(rows.column(name), OUT_SCHEMA_WITH_ORIGIN.field(name).type) for name in self.fields}
        if self.headers:
            kinds = {header.key: header.kind for header in self.headers if header.kind is not None}
            made["headers"] = headers_of(rows, {header.key: header.column for header in self.headers}, "null", kinds)
        if self.members:
            encode = None if self.writer is None else self.writer.make_encoder()
            made[PAYLOAD] = encode_payloads(rows, self.members, "null", self.format, encode)
        return complete(rows.num_rows, made)


def _find_writer(options: SinkOptions) -> WriterSchema | None:
    """Return the schema of payloads, which tasks on other machines get; one with a registry is registered."""
    payload = options.payload
    if "schema" not in payload:
        return None
    return find_writer_schema(
        payload["schema"], options.topic, kind=KINDS[payload["format"]], registry=payload.get("registry"),
        subject=payload.get("subject"), subject_strategy=payload.get("subject_strategy"),
        message=payload.get("message", ""), option="option payload.schema",
    )  # fmt: skip


def _choose_members(
    schema: pa.Schema, spare: Sequence[str], places: Mapping[str, str], used: Sequence[str]
) -> dict[Path, str]:
    """Return the column of each member of the payload: ``spare`` ones, at their place in ``places`` if it is there."""
    # names of options are in lower case, those of columns as they are
    known = {name.lower() for name in spare}
    for name in places:
        if name not in known:
            is_other = name in map(str.lower, schema.names)
            what = "is a header or a field of messages" if is_other else "does not exist"
            raise SettingError(f"option column.{name}: the column {what}; name a column that goes into the payload")
    if not spare:
        raise SettingError("payload.format: the frame has no columns for the payload; add some, or leave it out")
    paths: dict[str, str] = {}
    for name in spare:
        path = places.get(name.lower(), write_path((name,)))
        if path in paths:
            raise SettingError(f"columns {paths[path]!r} and {name!r} both go to {path}; name another path for one")
        paths[path] = name
    members = parse_payload_columns(paths)
    check_payload_columns(schema, members)
    return members


def _check(name: str, type_: pa.DataType) -> None:
    wanted = OUT_SCHEMA_WITH_ORIGIN.field(name).type
    texts = (pa.string(), pa.binary())
    if name == "headers":
        inner: Any = type_.value_type if pa.types.is_list(type_) else None
        is_list = inner is not None and pa.types.is_struct(inner)
        fits = is_header_map(type_) or (is_list and [field.name for field in inner] == HEADER_FIELDS)
    else:
        fits = type_ == wanted or (name in ("payload", "key") and type_ in texts) or (name == "id" and type_ in texts)
    if not fits and name == "headers":
        raise SettingError(
            f"column 'headers' is {type_}, and those of a message are array<struct<key string, kind tinyint, value "
            "binary>>, or a map<string,string> in order of key; cast it to one of them"
        )
    if not fits:
        raise SettingError(f"column {name!r} is {type_} and cannot be the {name} of a message ({wanted}); cast it")


def _convert_part(column: Any, wanted: pa.DataType) -> Any:
    if pa.types.is_map(column.type):
        return headers_of_map(column)
    return with_field_names(column, wanted) if pa.types.is_list(wanted) else column.cast(wanted)


@dataclass
class TaskCommit(WriterCommitMessage):
    """Messages that one task attempt sent, as Spark passes it to the driver."""

    sent: SentByTask


class TopicWriter:
    """The common part of batch and streaming writes."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        self.mapping = ColumnMapping.of(
            schema, options.headers, options.payload_places, options.payload.get("format", "json"),
            _find_writer(options),
        )  # fmt: skip
        self._target = DeliveryTarget(
            options.to,
            options.topic,
            "spark/",
            options.transactional_id,
            options.transaction_timeout_s,
            options.dedupe_header,
        )

    def check_topic(self) -> Self:
        """Raise UnknownTopic in the driver, in a sentence, instead of in each task, whose job Spark then aborts."""
        with self._open() as transport:
            transport.topic(self.options.topic)
        return self

    def send(self, batches: Iterator[pa.RecordBatch], work: str) -> TaskCommit:
        """Send the rows of one task attempt. If the target can hide them, they become visible when the driver commits.

        ``work`` is the name of what all tasks and attempts do together.
        """
        context = task_context()
        number = context.partitionId()
        with self._open() as transport:
            delivery = choose_commit_protocol(transport, self._target)
            partitions = len(transport.topic(self.options.topic).partitions)
            # tasks begin at different partitions, so that batches without keys spread evenly
            parts = self._split_by_partition(batches, partitions, number, choose_key_partitioner(transport))
            sent = delivery.write(parts, Task(work, number))
        freeze_modules()
        return TaskCommit(sent)

    def commit_all(self, messages: Messages) -> None:
        """Make the messages of the winning attempts visible. Idempotent."""
        sent = _list_sent(messages)
        if sent:
            with self._open() as transport:
                choose_commit_protocol(transport, self._target).commit(sent[0].work, sent)

    def abort_all(self, messages: Messages) -> None:
        """Discard what was sent, as far as the target can."""
        sent = _list_sent(messages)
        if sent:
            with suppress(LadingError), self._open() as transport:
                choose_commit_protocol(transport, self._target).abort(sent[0].work, sent)

    @contextmanager
    def _open(self) -> Iterator[Transport]:
        transport = open_transport(self.options.to, **self.options.transport)
        try:
            yield transport
        finally:
            transport.close()

    def _split_by_partition(
        self, batches: Iterator[pa.RecordBatch], partitions: int, turn: int, partitioner: KeyPartitioner
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield messages by the partition they go to: the row's own, else by key, else whole batches round robin."""
        for rows in batches:
            if not rows.num_rows:
                continue
            messages = self.mapping.batch(rows)
            if self.mapping.partition:
                chosen = _own_partitions(rows.column("partition"), partitions)
            elif "key" in self.mapping.fields:
                chosen = partitions_of(messages.column("key"), partitions, partitioner)
                chosen = np.where(chosen < 0, turn % partitions, chosen)
            else:
                chosen = np.full(rows.num_rows, turn % partitions)
            for number in np.unique(chosen).tolist():
                mine = chosen == number
                yield number, messages if mine.all() else messages.filter(pa.array(mine))
            turn += 1


class BatchWriter(TopicWriter, DataSourceArrowWriter):
    """``df.write.format("lading")``: all rows become visible together when the job ends."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        # one writer is made for each job and pickled to its tasks
        self._job = secrets.token_hex(16)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:  # type: ignore[override]
        """Send the rows of one task attempt."""
        return self.send(iterator, f"job/{self._job}")

    def commit(self, messages: Messages) -> None:
        """Make the job's messages visible."""
        self.commit_all(messages)

    def abort(self, messages: Messages) -> None:
        """Discard what was sent."""
        self.abort_all(messages)


def task_context() -> TaskContext:
    """Return Spark's context of the running task."""
    context = TaskContext.get()
    assert context is not None
    return context


def _list_sent(messages: Messages) -> list[SentByTask]:
    """Return what the tasks sent in transactions."""
    sent = [one.sent for one in messages if isinstance(one, TaskCommit)]
    return [one for one in sent if one.transaction is not None]


def _own_partitions(column: Any, partitions: int) -> NDArray[np.int64]:
    if column.null_count:
        raise LocalError("column 'partition' holds a null: give every row a partition, or drop the column")
    chosen = np.asarray(column, np.int64)
    if chosen.size and not 0 <= chosen.min() <= chosen.max() < partitions:
        wrong = chosen.max() if chosen.max() >= partitions else chosen.min()
        raise LocalError(f"column 'partition' holds {wrong}; the topic has partitions 0 to {partitions - 1}")
    return chosen
