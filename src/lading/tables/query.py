"""SQL over topics and tables by DuckDB: a topic is scanned while the query runs, in bounded memory."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from ..client.bulk import read_arrow, read_batches
from ..columns.contract import did_you_mean
from ..columns.field_names import field_meant
from ..columns.seen_members import PayloadStatistics
from ..columns.statistics import HeaderStatistics
from ..model.errors import LocalError
from ..model.extras import describe_install
from ..payloads.form import PayloadForm
from ..payloads.paths import Path, write_path
from ..registry.payload_form import parse_payload_form
from ..transports.fetched import States
from .formats.iceberg import FILE_IO, IcebergTable
from .formats.partitions import parse_value
from .formats.registry import split_target
from .query_payloads import PayloadFunctions, PayloadUse, find_payload_uses
from .schema_columns import COLUMNS_MAX, FieldSchema, find_type_word, sample_field_schemas
from .storage.files import has_scheme, table_location
from .storage.object_path import ObjectPath, TablePath, storage_options
from .storage.storage import StorageReferences

if TYPE_CHECKING:
    import pyarrow as pa

LOG: Final = logging.getLogger("lading.tables")
BEFORE: Final = ("partition", "offset", "timestamp", "key")
AFTER: Final = ("payload",)
"""The message fields of a topic's columns, before and after its headers."""
BYTES: Final = ("key", "payload")
"""The fields of a topic that are bytes."""
SAMPLE_MESSAGES: Final = 20_000
"""At most this many messages are read to find the columns of a topic."""
"""At most this many messages are read to find the schemas of a topic's payloads."""
MEMORY: Final = "1GB"
_UNKNOWN_COLUMN: Final = re.compile(r'Referenced column "([^"]+)" not found')
_SYNTAX_ERROR: Final = re.compile(r'syntax error at or near "([^"]+)"\n\n(LINE [0-9]+: .*)\n( *)')
"""The word, its line, and the spaces in front of the mark below the word."""
_MISSING_FILE: Final = re.compile(
    r"Failed to open local file '([^']+)'.*No such file|Object at location (.+?) not found", re.DOTALL
)
"""How Arrow's file systems and deltalake name a file that does not exist."""
_STYLES: Final = re.compile(r"\x1b\[[0-9;]*m")
_TRACEBACK: Final = ". Detail: Python exception: "
"""The text before the traceback of an error that Python code raised within a scan."""
ROWS: Final = 10_000
"""Rows of a batch of the result."""


@dataclass(frozen=True, slots=True)
class QuerySource:
    """Tables of a query: topics at ``url``, and directories of tables by name."""

    url: str
    tables: Mapping[str, str]
    columns: str | None = None
    """Columns of topics, instead of those that the first messages suggest."""
    states: States = "available"
    memory: str = MEMORY
    """Memory that DuckDB may use before it spills to disk."""
    storage: StorageReferences | None = None
    """Access to tables on object stores; None: by the environment alone."""
    payload: Mapping[str, str] | None = None
    """How payloads of topics are read, by the keys of ``[payload]`` in a contract."""


class TopicStream:
    """A topic as Arrow's stream interface: each scan reads it anew, fetching as it goes."""

    def __init__(self, source: QuerySource, topic: str, columns: str) -> None:
        self._source = source
        self._topic = topic
        self._columns = columns

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader: Any = read_batches(
            self._source.url, self._topic, self._columns, states=self._source.states, payload=self._source.payload
        )
        stream: object = reader.__arrow_c_stream__(requested_schema)
        return stream


@contextmanager
def run_query(sql: str, source: QuerySource) -> Iterator[pa.RecordBatchReader]:
    """Run one query and return its result as a reader of batches.

    Each table that the query names is one of ``tables``, or a topic. Raises LocalError for a query that DuckDB refuses,
    a topic or table that does not exist, or if DuckDB is not installed.
    """
    from pyarrow.lib import ArrowException

    duckdb = _require_duckdb()
    options = {"python_enable_replacements": False, "autoinstall_known_extensions": False}
    connection = duckdb.connect(":memory:", config=options | {"memory_limit": source.memory})
    try:
        # otherwise it is the machine's, and the same condition on a time counts other messages
        connection.execute("SET TimeZone = 'UTC'")
        _require_one_statement(duckdb, connection, sql)
        query = _parse(sql)
        tables = query.tables if query is not None else sorted(connection.get_table_names(sql))
        _require_distinct(tables)
        samples = _Samples(source)
        functions = PayloadFunctions(connection)
        rewritten = sql if query is None else _rewrite_payloads(sql, query, source, samples, functions)
        of_topics = not any(name in source.tables for name in tables)
        if query is not None and of_topics and query.opened_bytes in _bytes_of_topics(source):
            raise _bytes_member_error(query.opened_bytes)

        def bind(text: str, wanted: frozenset[str] | None) -> Any:
            for name in tables:
                connection.register(name, _open(name, source, wanted, samples))
            return connection.sql(text)

        try:
            try:
                result = bind(rewritten, None if query is None else query.columns)
            except duckdb.BinderException:
                # DuckDB names the columns that are near a mistyped one, of all that there are
                result = _bind_all(bind, rewritten, sql, duckdb)
            if query is not None and source.columns is None:
                samples.warn_of_case(query.names)
            if result is None:
                raise LocalError("the query has no result; ask for one, such as select count(*) from flights")
            yield result.to_arrow_reader(ROWS)
            functions.warn()
        except (duckdb.Error, ArrowException) as error:
            raise _query_error(error) from None
        except OSError as error:
            # what a scan raised comes through Arrow's C interface as an error without a number
            if error.errno is not None:
                raise
            raise _query_error(error) from None
    finally:
        connection.close()


def _bind_all(bind: Callable[[str, None], Any], rewritten: str, sql: str, duckdb: Any) -> Any:
    """Bind a query with all columns: rewritten or unchanged, since its own column ``payload`` need not be bytes."""
    try:
        return bind(rewritten, None)
    except duckdb.BinderException as error:
        try:
            return bind(sql, None)
        except duckdb.BinderException:
            raise error from None


def _require_duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise LocalError(f"SQL needs the package duckdb, which is not installed; {describe_install('sql')}") from None
    return duckdb


def _require_one_statement(duckdb: Any, connection: Any, sql: str) -> None:
    try:
        count = len(connection.extract_statements(sql))
    except duckdb.Error as error:
        raise _query_error(error) from None
    if count != 1:
        raise LocalError(f"the query has {count} statements; give one, such as select count(*) from flights")


def _require_distinct(tables: Sequence[str]) -> None:
    """Raise LocalError for two tables whose names DuckDB takes for one: it would read the same table twice."""
    known: dict[str, str] = {}
    for name in tables:
        # DuckDB folds the case of ASCII alone
        folded = "".join(letter.lower() if letter.isascii() else letter for letter in name)
        if (other := known.setdefault(folded, name)) != name:
            raise LocalError(
                f"query: tables {other!r} and {name!r} differ only in case, which SQL does not tell apart; "
                f"query them one at a time"
            )


def _bytes_of_topics(source: QuerySource) -> list[str]:
    """Return the message fields that are bytes in the tables of topics, not text by ``source.columns``."""
    if source.columns is None:
        return list(BYTES)
    from ..columns.contract import parse_columns

    texts = parse_columns(source.columns).texts
    return [name for name in BYTES if name not in texts]


def _bytes_member_error(field: str) -> LocalError:
    return LocalError(
        f"query: the column {field} is bytes, and a member of them is always null; write decode({field}) ->> 'NAME' if "
        f"they are JSON, or read it as text by --columns '…, {field} string'"
    )


def _query_error(error: Exception) -> LocalError:
    text = _STYLES.sub("", str(error)).partition(_TRACEBACK)[0].strip()
    if found := _MISSING_FILE.search(text):
        place = found[1] or found[2]
        return LocalError(f"query: table file {place} is missing, which the table's log lists; restore it")
    fields = (*BEFORE, *AFTER)
    if (found := _UNKNOWN_COLUMN.search(text)) and (field := field_meant(found[1], fields)):
        text += f"\nDid you mean {field!r}?"
    elif found := _SYNTAX_ERROR.search(text):
        # `select offset, key` fails at the comma
        words = (found[1], *found[2][: len(found[3])].split()[-1:])
        text += "".join(
            f'\nThe column {word} is a word of SQL too: write it in double quotes, "{word}".'
            for word in words
            if word in fields
        )
    return LocalError(f"query: {text}")


class _NamedInQuery(NamedTuple):
    """The tables that a query names, and all words in it, in lower case; None if it may use any column."""

    tables: list[str]
    columns: frozenset[str] | None
    opened_bytes: str | None = None
    """The key, if the query takes it for JSON."""
    tree: Any = None
    """The query as sqlglot parses it."""
    names: frozenset[str] = frozenset()
    """All names in it, in the case in which they are written."""


def _parse(sql: str) -> _NamedInQuery | None:
    """Return the names in a query; None if only DuckDB can parse it."""
    from sqlglot import exp, parse_one, tokenize
    from sqlglot.errors import SqlglotError

    try:
        tree: Any = parse_one(sql, read="duckdb")
        words = frozenset(token.text.lower() for token in tokenize(sql, read="duckdb"))
    except (SqlglotError, RecursionError):
        return None
    own = {one.alias.lower() for one in tree.find_all(exp.CTE)}
    named = {one.name for one in tree.find_all(exp.Table) if isinstance(one.this, exp.Identifier) and not one.db}
    # count(*) needs no column
    stars = [star for star in tree.find_all(exp.Star) if not isinstance(star.parent, exp.Count)]
    opened = (one.this for one in tree.find_all(exp.JSONExtract, exp.JSONExtractScalar))
    of_bytes = next((one.name for one in opened if isinstance(one, exp.Column) and one.name == "key"), None)
    # a table of the query itself may have a column of this name, of another type
    of_bytes = None if own else of_bytes
    tables = sorted(name for name in named if name.lower() not in own)
    names = frozenset(one.name for one in tree.find_all(exp.Identifier))
    return _NamedInQuery(tables, None if stars else words, of_bytes, tree, names)


class _Samples:
    """The first messages of topics, each read once: statistics of their headers and payloads."""

    def __init__(self, source: QuerySource) -> None:
        self._source = source
        self._known: dict[str, tuple[HeaderStatistics, PayloadStatistics]] = {}
        self._schemas: dict[str, list[FieldSchema]] = {}
        self.members: dict[str, dict[Path, tuple[str, str]]] = {}
        """The columns of each topic's scan for members of payloads: path, to name and type."""

    def find_member(self, topic: str, path: Path, form: PayloadForm) -> str:
        """Return the name of the column of a scan that has a member of payloads with a schema; it is added to the scan.

        Raises LocalError for a member that the schemas of the first messages do not have.
        """
        members = self.members.setdefault(topic, {})
        if path not in members:
            schemas = self._list_schemas(topic, form)
            word = "string" if form.format == "text" else find_type_word(schemas, path)
            if word is None:
                fields = (known for schema in schemas for known, _, _ in islice(schema.list_fields(), COLUMNS_MAX))
                known = [write_path(known) for known in fields]
                text = write_path(path)
                raise LocalError(
                    f"query: the schemas of the first payloads of {topic!r} have no {text}{did_you_mean(text, known)}; "
                    f"declare it by --columns '…, {path[-1]} string from {text}'"
                )
            members[path] = f"payload_member_{len(members) + 1}", word
        return members[path][0]

    def _list_schemas(self, topic: str, form: PayloadForm) -> list[FieldSchema]:
        if topic not in self._schemas:
            self._schemas[topic] = sample_field_schemas(self._source.url, topic, form, self._source.states)
        return self._schemas[topic]

    def warn_of_case(self, names: Collection[str]) -> None:
        """Log a sentence for each name that is exactly a header's, but means a column of another case in SQL."""
        for topic, (statistics, _) in self._known.items():
            for key, column in statistics.name_columns().items():
                if key != column and key in names and key not in (*BEFORE, *AFTER):
                    LOG.warning(
                        "column %r of topic %r: SQL does not tell case apart, and this is another column than the "
                        "header %r, whose column is %s", key, topic, key, column,
                    )  # fmt: skip

    def of_topic(self, topic: str) -> tuple[HeaderStatistics, PayloadStatistics]:
        """Return what is known of a topic, after reading it."""
        if topic not in self._known:
            headers, members = HeaderStatistics(), PayloadStatistics()
            options: dict[str, Any] = {"limit": SAMPLE_MESSAGES, "verify_checksum": False}
            columns = "partition, offset, headers, payload"
            sample = read_arrow(self._source.url, topic, columns, states=self._source.states, **options)
            for batch in sample.to_batches():
                headers.add(batch)
                members.add(batch)
            self._known[topic] = headers, members
        return self._known[topic]


def _rewrite_payloads(
    sql: str, query: _NamedInQuery, source: QuerySource, samples: _Samples, functions: PayloadFunctions
) -> str:
    """Return the query with functions in the places that read members of payloads."""
    from sqlglot import exp

    from ..columns.contract import parse_columns

    aliases = {one.alias_or_name.lower(): one.name for one in query.tree.find_all(exp.Table)}
    topics = {alias: name for alias, name in aliases.items() if name in query.tables and name not in source.tables}
    tables = frozenset(alias for alias, name in aliases.items() if name in source.tables)
    columns = None if source.columns is None else parse_columns(source.columns)
    texts = columns is not None and "payload" in columns.texts
    uses = find_payload_uses(query.tree, topics, tables, texts)
    declared = {} if columns is None else {column.path: column.name for column in columns.payload}
    form = parse_payload_form(source.payload)
    if not form.reads_json:
        return _rewrite_members(sql, uses, form, samples, declared, list(topics.values()), columns is not None)
    for use in uses:
        if use.path not in declared and columns is not None and ("payload" not in columns.fields or texts):
            text = use.column if use.path is None else write_path(use.path)
            raise LocalError(
                f"query: {text}: the payload is not among --columns as bytes; add `payload`, or the member as "
                f"`NAME TYPE from payload.PATH`"
            )

    def sample(topic: str | None) -> dict[str, PayloadStatistics]:
        names = topics.values() if topic is None else [topic]
        return {name: samples.of_topic(name)[1] for name in names}

    return functions.rewrite(sql, uses, sample, declared)


def _rewrite_members(
    sql: str, uses: list[PayloadUse], form: PayloadForm, samples: _Samples, declared: Mapping[Path, str],
    topics: list[str], are_declared: bool,
) -> str:  # fmt: skip
    """Return the query with columns of scans in the places that read members of payloads which are not JSON."""
    for use in sorted(uses, reverse=True):
        if use.path is None:
            raise LocalError(
                f"query: {use.column} is not JSON but {form.format}, which SQL cannot open; write {use.column}.NAME"
            )
        name = declared.get(use.path)
        if name is None and are_declared:
            text = write_path(use.path)
            raise LocalError(f"query: {text} is not among --columns; add `{use.path[-1]} TYPE from {text}`")
        for topic in topics if use.topic is None else [use.topic]:
            name = name or samples.find_member(topic, use.path, form)
        column = '"' + str(name).replace('"', '""') + '"'
        qualifier = use.column.rpartition(".")[0]
        column = f"{qualifier}.{column}" if qualifier else column
        if use.is_item:
            column += ' as "' + write_path(use.path).replace('"', '""') + '"'
        sql = sql[: use.start] + column + sql[use.end :]
    return sql


def _open(name: str, source: QuerySource, wanted: frozenset[str] | None, samples: _Samples) -> object:
    if name in source.tables:
        form, place = split_target(source.tables[name])
        form, _, catalog = form.partition(":")
        if form not in DATASETS:
            raise LocalError(f"table {name!r}: {form} tables cannot be queried; query {', '.join(DATASETS)} tables")
        if has_scheme(place):
            location = table_location(f"table {name!r}", place)
            if source.storage is not None:
                source.storage.bind([location])
            return _open_in_store(form, catalog, location, wanted)
        if not FilePath(place).is_dir():
            raise LocalError(f"table {name!r}: directory {place} does not exist; name a table, NAME=DIRECTORY")
        if form == "iceberg":
            return _open_iceberg(place, wanted, catalog)
        return DATASETS[form](place, wanted)
    if source.columns is not None:
        return TopicStream(source, name, source.columns)
    statistics, _ = samples.of_topic(name)
    columns = [*BEFORE, *statistics.suggest_columns(), *AFTER]
    kept = [one for one in columns if wanted is None or _name_of(one).lower() in wanted]
    kept += [
        f"{column} {word} from {write_path(path)}" for path, (column, word) in samples.members.get(name, {}).items()
    ]
    # a scan without any column would have no rows either
    return TopicStream(source, name, ", ".join(kept or ["offset"]))


def _name_of(column: str) -> str:
    """Return the name of a column that ``suggest_columns`` wrote."""
    from ..columns.contract import parse_columns

    return parse_columns(column).schema.names[0]


def _open_in_store(form: str, catalog: str, place: TablePath, wanted: frozenset[str] | None) -> object:
    if not isinstance(place, ObjectPath):
        return DATASETS[form](str(place), wanted)
    if not place.is_dir():
        raise LocalError(f"table {place}: there are no objects below this name; name a table, NAME=FORM:URL")
    if form == "iceberg":
        return _open_stored_iceberg(place, wanted, catalog)
    return STORED[form](place, wanted)


def _open_stored_parquet(place: ObjectPath, wanted: frozenset[str] | None) -> object:
    import pyarrow as pa
    import pyarrow.dataset as ds

    form = ds.ParquetFileFormat()
    files = [(place / name, size) for name, size in place.walk() if name.endswith(".parquet") and _is_data(name)]
    if not files:
        raise LocalError(f"table {place}: there are no Parquet files below this name; name a table, NAME=FORM:URL")
    columns = _partition_columns([path.key for path, _ in files])
    fragments = [
        form.make_fragment(path.open_reader(size), partition_expression=_parse_partitions(path.key, columns))
        for path, size in files
    ]
    return ds.FileSystemDataset(fragments, pa.unify_schemas([fragments[0].physical_schema, columns]), form)


def _partition_columns(keys: Iterable[str]) -> pa.Schema:
    """Return the columns that directories such as ``carrier=UA`` say: integers, if all values are, as in datasets."""
    import pyarrow as pa

    values: dict[str, set[str]] = {}
    for key in keys:
        for part in key.split("/")[:-1]:
            name, equals, text = part.partition("=")
            value = parse_value(text)
            if equals:
                values.setdefault(unquote(name), set()).update(() if value is None else (value,))
    fields: list[tuple[str, pa.DataType]] = []
    for name, held in values.items():
        try:
            fields.append((name, pa.array(sorted(held), pa.string()).cast(pa.int32() if held else pa.string()).type))
        except pa.ArrowInvalid:
            fields.append((name, pa.string()))
    return pa.schema(fields)


def _parse_partitions(key: str, columns: pa.Schema) -> Any:
    """Return the partition values of a file's rows, from the names of its directories.

    Arrow's own parser undoes escapes first, and takes the text ``__HIVE_DEFAULT_PARTITION__`` for null.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    expression = pc.scalar(True)
    for part in key.split("/")[:-1]:
        name, equals, text = part.partition("=")
        if equals:
            field, value = ds.field(unquote(name)), parse_value(text)
            said = (
                field.is_null() if value is None else field == pa.scalar(value).cast(columns.field(unquote(name)).type)
            )
            expression = expression & said
    return expression


def _open_stored_delta(place: ObjectPath, wanted: frozenset[str] | None) -> object:
    _require_library("deltalake", "delta", str(place))
    import deltalake
    from deltalake.exceptions import TableNotFoundError

    try:
        return deltalake.DeltaTable(str(place), storage_options=storage_options(place)).to_pyarrow_dataset()
    except TableNotFoundError:
        raise LocalError(f"table {place}: holds no Delta table; name one, or its form, NAME=FORM:URL") from None
    except OSError as error:
        raise place.store_error(error) from None


def _open_stored_iceberg(place: ObjectPath, wanted: frozenset[str] | None, catalog: str = "") -> object:
    _require_library("pyiceberg", "iceberg", str(place))
    table = IcebergTable(place, None, catalog or None)
    if table.has_catalog():
        return _iceberg_scan(table.load(), wanted)
    return _scan_static(str(place), str(place), {"py-io-impl": FILE_IO}, wanted)


def _open_parquet(place: str, wanted: frozenset[str] | None) -> object:
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.fs as fs

    names = (path.relative_to(place).as_posix() for path in FilePath(place).rglob("*") if path.is_file())
    keys = sorted(filter(_is_data, names))
    if not keys:
        # as after a run that ended before its first commit; DuckDB would say that a dataframe needs a column
        raise LocalError(f"table {place}: there are no Parquet files below this name; name a table, NAME=FORM:DIR")
    columns = _partition_columns(keys)
    if not columns.names:
        return ds.dataset(place, format="parquet")
    form, local = ds.ParquetFileFormat(), fs.SubTreeFileSystem(place, fs.LocalFileSystem())
    fragments = [form.make_fragment(key, local, partition_expression=_parse_partitions(key, columns)) for key in keys]
    return ds.FileSystemDataset(fragments, pa.unify_schemas([fragments[0].physical_schema, columns]), form, local)


def _is_data(key: str) -> bool:
    """Return whether a file is part of a table, as Spark sees it: names with _ or . in front only if they have a =."""
    return not any(part.startswith(("_", ".")) and "=" not in part for part in key.split("/"))


def _open_delta(place: str, wanted: frozenset[str] | None) -> object:
    _require_library("deltalake", "delta", place)
    import deltalake

    return deltalake.DeltaTable(place).to_pyarrow_dataset()


class IcebergScan:
    """An Iceberg table as Arrow's stream interface: each scan reads it anew, and only these columns."""

    def __init__(self, table: Any, columns: tuple[str, ...]) -> None:
        self._table = table
        self._columns = columns

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = self._table.scan(selected_fields=self._columns).to_arrow_batch_reader()
        stream: object = reader.__arrow_c_stream__(requested_schema)
        return stream


def _open_iceberg(place: str, wanted: frozenset[str] | None, catalog: str = "") -> object:
    """Open a table as its catalog has it: the one that is named, that it was written with, or in its directory.

    Commits that others make through a catalog, such as deletes, are not in ``version-hint.text``, which is read only
    without a catalog.
    """
    _require_library("pyiceberg", "iceberg", place)
    directory = FilePath(place).absolute()
    table = IcebergTable(directory, None, catalog or None)
    if table.has_catalog():
        return _iceberg_scan(table.load(), wanted)
    return _scan_static(place, str(directory), {}, wanted)


def _scan_static(place: str, location: str, properties: dict[str, str], wanted: frozenset[str] | None) -> IcebergScan:
    """Scan a table that no catalog is asked for; ``place`` is what the user called its ``location``."""
    from pyiceberg.table import StaticTable

    try:
        table = StaticTable.from_metadata(location, properties)
    except FileNotFoundError:
        raise LocalError(
            f"table {place}: metadata/version-hint.text, which names its newest metadata, or these do not exist; name "
            "the directory of an Iceberg table that Lading or Hadoop's catalog has written"
        ) from None
    return _iceberg_scan(table, wanted)


def _iceberg_scan(table: Any, wanted: frozenset[str] | None) -> IcebergScan:
    names = table.schema().as_arrow().names
    # a scan without any column would have no rows either
    kept = [name for name in names if wanted is None or name.lower() in wanted] or names[:1]
    return IcebergScan(table, tuple(kept))


def _require_library(package: str, extra: str, place: str) -> None:
    try:
        import_module(package)
    except ImportError:
        raise LocalError(
            f"table {place}: reading it needs the package {package}, which is not installed; {describe_install(extra)}"
        ) from None


DATASETS: Final[Mapping[str, Callable[[str, frozenset[str] | None], object]]] = {
    "parquet": _open_parquet, "delta": _open_delta, "iceberg": _open_iceberg,
}  # fmt: skip
"""Opens a table of each form for reading, of which these columns are wanted; None for all."""
STORED: Final[Mapping[str, Callable[[ObjectPath, frozenset[str] | None], object]]] = {
    "parquet": _open_stored_parquet, "delta": _open_stored_delta, "iceberg": _open_stored_iceberg,
}  # fmt: skip
"""Opens a table on an object store; an Iceberg table may be named with its catalog."""
