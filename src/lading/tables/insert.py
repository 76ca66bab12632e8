"""``insert into TOPIC select …``: the rows of a query become messages, whose headers are named after its columns."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..client.delivery import DeliveryTarget, refuses_message, send_once
from ..client.header_columns import form_of, headers_of, is_header_map
from ..client.outgoing import as_field, complete
from ..client.partitioning import PartitionChooser, choose_key_partitioner
from ..model.batch import HEADERS_TYPE
from ..model.errors import LimitExceeded, LocalError, Refusal
from ..model.printable import join_for_shell
from ..transports.fitting import MessageRefused
from ..transports.interface import Transport
from ..transports.lading.transport import LadingTransport
from ..transports.topics import UnknownTopic
from ..transports.transactions import TransactionalTransport
from .query import QuerySource, run_query

FIELDS: Final = ("key", "payload", "timestamp")
"""Columns of a query that become these parts of messages."""
PLACES: Final = ("stream", "topic", "partition", "offset")
"""Columns with the place of a message; they are left out."""
OTHERS: Final = ("id", "state", "checksum")
PIECES_KEPT: Final = 64
"""The rows of this many last pieces of each partition are known when the target refuses a message."""


class InsertStatement(NamedTuple):
    """An insert: its topic, the names of its columns if it lists them, and its query."""

    topic: str
    names: tuple[str, ...] | None
    query: str


class InsertResult(NamedTuple):
    """The messages that an insert sent, or with a dry run would send."""

    topic: str
    messages: int
    headers: dict[str, str]
    """The kind of each header, by its key."""
    fields: tuple[str, ...]
    """The parts of messages that columns became."""
    left_out: tuple[str, ...]
    is_atomic: bool
    """Whether readers see all messages or none, also after an error."""


def parse_insert(sql: str) -> InsertStatement | None:
    """Return the parts of a statement that begins with INSERT; None for another one. Raises LocalError for its form."""
    from sqlglot import tokenize
    from sqlglot.errors import SqlglotError

    try:
        tokens = tokenize(sql, read="duckdb")
    except SqlglotError:
        return None
    if not tokens or tokens[0].text.upper() != "INSERT":
        return None
    words = [token.text.upper() for token in tokens]
    position = 2
    parts: list[str] = []
    while words[1:2] == ["INTO"] and position < len(tokens) and words[position] not in ("(", *_BEGINNINGS):
        if parts and tokens[position].start != tokens[position - 1].end + 1:
            written = sql[tokens[2].start : tokens[position].end + 1]
            raise LocalError(
                f"insert into {written}: a name with a space is written in quotes; write insert into "
                f'"{written}" select …'
            )
        parts.append(tokens[position].text)
        position += 1
    names: tuple[str, ...] | None = None
    if words[position : position + 1] == ["("] and words[position + 1] not in _BEGINNINGS:
        end = words.index(")", position) if ")" in words[position:] else len(words)
        names = tuple(token.text for token in tokens[position + 1 : end] if token.text != ",")
        position = end + 1
    if not parts or position >= len(tokens) or words[position] not in ("(", *_BEGINNINGS):
        raise LocalError(f"insert {sql!r}: the form is not known; write insert into TOPIC select … from …")
    return InsertStatement("".join(parts), names, sql[tokens[position].start :])


_BEGINNINGS: Final = ("SELECT", "WITH", "FROM", "VALUES")


def run_insert(statement: InsertStatement, source: QuerySource, target: Transport, *, dry_run: bool) -> InsertResult:
    """Send the rows of a query as messages of a topic; with ``dry_run`` only say what would be sent.

    Columns called key, payload and timestamp become these, others headers of the kind of their type. In a Lading broker
    and a Kafka cluster all messages become visible together, or none. Raises LocalError, with topic, partition and row,
    for a message that the target refuses.
    """
    topic = statement.topic
    try:
        count = len(target.topic(topic).partitions)
    except UnknownTopic as error:
        command = join_for_shell(["lading", "topic", "create", topic, "--server", target.url])
        raise UnknownTopic(f"insert into {topic!r}: {str(error).rstrip('.')}; to create it: {command}") from None
    is_atomic = isinstance(target, LadingTransport | TransactionalTransport)
    with run_query(statement.query, source) as rows:
        columns = _plan(statement, rows.schema)
        kinds = _find_kinds(topic, columns, rows.schema)
        encoder = _RowEncoder(topic, columns, PartitionChooser(1000, choose_key_partitioner(target)), count)
        if dry_run:
            messages = sum(batch.num_rows for _, batch in encoder.encode(rows))
        else:
            name = f"sql/{uuid4().hex}"
            transaction = None if isinstance(target, LadingTransport) or not is_atomic else name
            delivery = DeliveryTarget(source.url, topic, "", transaction)
            try:
                messages = send_once(target, delivery, name, encoder.encode(rows))
            except (LimitExceeded, Refusal) as error:
                if not refuses_message(error):
                    raise
                partition, row = (error.partition, error.row) if isinstance(error, MessageRefused) else (None, None)
                raise encoder.name_row(error, partition, row, is_atomic=is_atomic) from None
    return InsertResult(topic, messages, kinds, tuple(columns.fields), columns.left_out, is_atomic)


class _InsertColumns(NamedTuple):
    """Positions of the columns of a query: of headers by key, and of the parts of messages."""

    headers: dict[str, int]
    fields: dict[str, int]
    left_out: tuple[str, ...]


def _plan(statement: InsertStatement, schema: pa.Schema) -> _InsertColumns:
    names = statement.names or tuple(schema.names)
    where = f"insert into {statement.topic!r}"
    if len(names) != len(schema.names):
        raise LocalError(f"{where}: {len(names)} columns are named, and the query has {len(schema.names)}; name each")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise LocalError(f"{where}: two columns are called {twice!r}; rename one, as in select … as other_{twice}")
    other = next((name for name in names if name in OTHERS), None)
    if other is not None:
        raise LocalError(f"{where}: {other!r} is what the target gives a message; leave the column out, or rename it")
    fields = {name: at for at, name in enumerate(names) if name in FIELDS}
    headers = {name: at for at, name in enumerate(names) if name not in (*FIELDS, *PLACES)}
    whole = headers.get("headers")
    if whole is not None and (schema.types[whole] == HEADERS_TYPE or is_header_map(schema.types[whole])):
        del headers["headers"]
        if headers:
            raise LocalError(
                f"{where}: the column headers has all headers, and {next(iter(headers))!r} is one more; leave out one"
            )
        fields["headers"] = whole
    if not headers and not fields:
        raise LocalError(f"{where}: no column becomes a part of a message; select a payload, a key or a header")
    return _InsertColumns(headers, fields, tuple(name for name in names if name in PLACES))


def _find_kinds(topic: str, columns: _InsertColumns, schema: pa.Schema) -> dict[str, str]:
    kinds: dict[str, str] = {}
    for key, at in columns.headers.items():
        type_ = schema.types[at]
        try:
            kinds[key] = form_of(key, type_.value_type if pa.types.is_dictionary(type_) else type_).kind.word
        except LocalError as error:
            raise LocalError(f"insert into {topic!r}: {error}; cast the column, or leave it out") from None
    return kinds


@dataclass
class _RowEncoder:
    """Makes messages of rows, and knows which row of the query each of them was."""

    topic: str
    columns: _InsertColumns
    chooser: PartitionChooser
    partitions: int
    _last: tuple[int, int, int] | None = None
    """Partition, first and last row of the piece that was yielded last."""
    _sent: dict[int, int] = field(default_factory=dict)
    _pieces: dict[int, deque[tuple[int, Any]]] = field(default_factory=dict)

    def encode(self, rows: pa.RecordBatchReader) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield messages with their partitions; their offsets are the numbers of rows, from 0."""
        first = 0
        for batch in rows:
            if not batch.num_rows:
                continue
            numbers = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
            try:
                messages = self._encode_batch(batch, numbers)
            except (LocalError, pa.ArrowInvalid) as error:
                raise LocalError(
                    f"insert into {self.topic!r}, rows {first + 1} to {first + batch.num_rows}: {error}; cast the "
                    "column, or leave out such rows"
                ) from None
            first += batch.num_rows
            for partition, piece in self.chooser.split(self.topic, messages, None, self.partitions):
                sources = piece.column("offset").to_numpy()
                begun = self._sent.get(partition, 0)
                self._pieces.setdefault(partition, deque(maxlen=PIECES_KEPT)).append((begun, sources))
                self._sent[partition] = begun + piece.num_rows
                self._last = partition, int(sources[0]), int(sources[-1])
                yield partition, piece

    def _encode_batch(self, batch: pa.RecordBatch, numbers: pa.Array[Any]) -> pa.RecordBatch:
        made: dict[str, Any] = {"offset": numbers}
        for name, at in self.columns.fields.items():
            column: Any = batch.column(at)
            if name == "timestamp" and pa.types.is_timestamp(column.type) and column.type.tz is None:
                column = pc.assume_timezone(column, "UTC")
            made[name] = as_field(column, name, name)
        if self.columns.headers:
            places = self.columns.headers
            named = pa.RecordBatch.from_arrays([batch.column(at) for at in places.values()], names=list(places))
            made["headers"] = headers_of(named, {key: key for key in places}, "null")
        return complete(batch.num_rows, made)

    def name_row(self, error: Exception, partition: int | None, row: int | None, *, is_atomic: bool) -> LocalError:
        """Build the error of a refused message, with topic, partition and row, counted from 1 in the query."""
        place = f"insert into {self.topic!r}"
        if self._last is not None:
            number, low, high = self._last
            if partition is not None and row is not None:
                for begun, sources in self._pieces.get(partition, ()):
                    if begun <= row < begun + len(sources):
                        number, low = partition, int(sources[row - begun])
                        high = low
            elif row is not None:
                _, sources = self._pieces[number][-1]
                low = high = int(sources[min(row, len(sources) - 1)])
            rows = f"row {low + 1}" if low == high else f"rows {low + 1} to {high + 1}"
            place += f", partition {number}, {rows}"
        rest = "no message of the insert is visible" if is_atomic else "the messages before it were sent"
        return LocalError(f"{place}: {error}; {rest}")
