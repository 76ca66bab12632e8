"""Header functions for DataFrames with a header array, as Column functions and as SQL functions.

``headers`` is ``array<struct<key string, kind tinyint, value binary>>``, as from ``format("lading")``, or without
``kind``, as from Spark's Kafka connector (all values are raw then). Declared header columns of the source are faster:
use these functions if a frame has only the header array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..columns.contract import ARRAY, TYPES, Encoding, Projection, parse_columns, parse_encoding, parse_type
from ..columns.locate import Entries, locate
from ..columns.repeated import convert_repeated
from ..columns.typed import convert_column as typed_array
from ..columns.typed import convert_to_text
from ..model.batch import HEADERS_TYPE
from ..model.errors import LocalError, SettingError
from ..model.headers import Header
from ..model.kinds import Kind
from ..model.state import State
from ..tables.scan.schema import with_field_names
from .releases import Feature

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SQL_FUNCTIONS = (
    (
        "header_value",
        "BINARY",
        "try_element_at(filter(headers, h -> h.key = name), -1).value",
        "the bytes of the last value of a header",
    ),
    (
        "header_values",
        "ARRAY<BINARY>",
        "transform(filter(headers, h -> h.key = name), h -> h.value)",
        "the bytes of all values of a header, in order",
    ),
    (
        "header_str",
        "STRING",
        "CASE WHEN try_element_at(filter(headers, h -> h.key = name), -1).kind IN (1, 2) "
        "THEN try_validate_utf8(CAST(try_element_at(filter(headers, h -> h.key = name), -1).value AS STRING)) END",
        "the last value of a header as text, where its kind is string or raw",
    ),
)
"""Pure SQL, inlined into the plan: name, type, body, meaning."""

TYPED_FUNCTIONS = {f"header_{word.partition('(')[0]}": word for word in TYPES if word not in ("string", "binary")}
"""``header_int(headers, name)`` and so on: the last value by the typing rules of the contract."""
SQL_HEADERS = "ARRAY<STRUCT<key: STRING, kind: TINYINT, value: BINARY>>"


def header_value(headers: str | Column, key: str) -> Column:
    """Return the bytes of the last value of header ``key``; null if it is absent or null."""
    from pyspark.sql import functions as F

    last: Column = F.try_element_at(_entries_of(headers, key), F.lit(-1))
    return last.getField("value")


def header_values(headers: str | Column, key: str) -> Column:
    """Return the bytes of all values of header ``key``, in order; empty if it is absent."""
    from pyspark.sql import functions as F

    return F.transform(_entries_of(headers, key), lambda entry: entry.getField("value"))


def header_get(headers: str | Column, key: str, type_: str = "string", encoding: str = "auto") -> Column:
    """Return the last value of header ``key`` as ``type_`` by the typing rules of the contract, or null.

    Raises SettingError for a type or encoding that does not exist.
    """
    from pyspark.sql import functions as F

    wanted, form = parse_type(type_), parse_encoding(encoding)

    def convert(lists: pa.Array[Any]) -> pa.Array[Any]:
        return typed_array(locate(as_headers(lists), [key])[key], wanted, form)[0]

    made: Column = arrow_function(convert, wanted)(F.col(headers) if isinstance(headers, str) else headers)
    return made


def show_headers(headers: str | Column) -> Column:
    """Return all headers in order as texts, ``delay = uint16: 12``, as ``str(header)`` in Python gives them."""
    from pyspark.sql import functions as F

    shown: Column = _header_texts()(F.col(headers) if isinstance(headers, str) else headers)
    return shown


def state_word(state: str | Column) -> Column:
    """Return the word of a message state, ``poisoned`` for 20; null for a number that is not a state."""
    from pyspark.sql import functions as F

    code = F.col(state) if isinstance(state, str) else state
    first, *others = State
    word = F.when(code == F.lit(int(first)), first.word)
    for known in others:
        word = word.when(code == F.lit(int(known)), known.word)
    return word


def typed(frame: DataFrame, contract: str, headers: str = "headers") -> DataFrame:
    """Select the columns of ``contract`` ("offset, carrier string, delay int be") from a frame with a header array.

    Plain names are columns of the frame; names with a type are headers, all converted in one pass over the array.
    Raises SettingError, which names the column, if the frame does not have it.
    """
    from pyspark.sql import functions as F

    projection = parse_columns(contract)
    missing = [name for name in (*projection.fields, headers) if name not in frame.columns]
    if missing:
        raise SettingError(f"the frame has no column {missing[0]!r}; it has {', '.join(frame.columns)}")
    for name in projection.texts:
        frame = frame.withColumn(name, _field_text()(F.col(name)))
    if not projection.headers:
        return frame.select(*projection.order)
    made = frame.withColumn("_headers_typed", _make_promotion(projection)(F.col(headers)))
    return made.select(
        *(
            F.col(name) if name in projection.fields else F.col("_headers_typed").getField(name).alias(name)
            for name in projection.order
        )
    )


def register_functions(spark: SparkSession) -> None:
    """Register the SQL functions: ``header_value``, ``header_int`` and so on, ``show_headers``, ``state_word``."""
    for name, returns, body, meaning in SQL_FUNCTIONS:
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY FUNCTION {name}(headers {SQL_HEADERS}, name STRING) RETURNS {returns} "
            f"COMMENT '{meaning}' RETURN {body}"
        )
    if Feature.ARROW_FUNCTIONS.is_offered:
        for name, word in TYPED_FUNCTIONS.items():
            spark.udf.register(name, _sql_typed(parse_type(word)))
        spark.udf.register("show_headers", _header_texts())
    words = " ".join(f"WHEN {int(known)} THEN '{known.word}'" for known in State)
    spark.sql(
        "CREATE OR REPLACE TEMPORARY FUNCTION state_word(state INT) RETURNS STRING "
        f"COMMENT 'the word of a message state' RETURN CASE state {words} END"
    )


def as_headers(lists: pa.Array[Any]) -> pa.Array[Any]:
    """Return a header array of any writer in our own type; without kinds all values are raw; null lists are empty."""
    if not pa.types.is_list(lists.type) or not pa.types.is_struct(lists.type.value_type):
        raise LocalError(f"a header array is array<struct<key, kind, value>>, not {lists.type}")
    nested: Any = lists
    entries: Any = nested.values
    names = [field.name for field in entries.type]
    if "kind" not in names:
        kinds: Any = pa.array(np.full(len(entries), int(Kind.RAW), np.int8))
        parts = [entries.field(names.index("key")), kinds, entries.field(names.index("value"))]
        entries = pa.StructArray.from_arrays(parts, fields=list(HEADERS_TYPE.value_type))
    else:
        entries = with_field_names(entries, HEADERS_TYPE.value_type)
    return pa.Array.from_buffers(HEADERS_TYPE, len(lists), [None, lists.buffers()[1]], 0, lists.offset, [entries])


def all_values(lists: pa.Array[Any], key: str, convert: Callable[[Any], pa.Array[Any]]) -> pa.Array[Any]:
    """Return all values of header ``key`` as one list per message, converted by ``convert(located)``."""
    entries = Entries.of(as_headers(lists))
    found, parents = entries.every(key)
    ends = np.searchsorted(parents, np.arange(entries.rows + 1)).astype(np.int32)
    made: pa.Array[Any] = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), convert(entries.locate(found)))
    return made


def _entries_of(headers: str | Column, key: str) -> Column:
    from pyspark.sql import functions as F

    return F.filter(headers, lambda entry: entry.getField("key") == F.lit(key))


def _make_promotion(projection: Projection) -> Callable[[Column], Column]:
    fields = [column.field for column in projection.headers]

    def convert(lists: pa.Array[Any]) -> pa.Array[Any]:
        held = as_headers(lists)
        located = locate(held, projection.header_keys)
        arrays = [
            convert_repeated(held, column.header, column.encoding)[0]
            if column.type == ARRAY
            else typed_array(located[column.header], column.type, column.encoding)[0]
            for column in projection.headers
        ]
        return pa.StructArray.from_arrays(arrays, fields=fields)

    promote: Callable[[Column], Column] = arrow_function(convert, pa.struct(fields))
    return promote


def _field_text() -> Any:
    return arrow_function(lambda values: convert_to_text(values)[0], pa.string())


def _header_texts() -> Any:
    def convert(lists: pa.Array[Any]) -> pa.Array[Any]:
        rows: list[Any] = as_headers(lists).to_pylist()
        texts = [[str(Header(**header)) for header in headers] for headers in rows]
        return pa.array(texts, pa.list_(pa.string()))

    return arrow_function(convert, pa.list_(pa.string()))


def _sql_typed(wanted: pa.DataType) -> Any:
    def convert(lists: pa.Array[Any], names: pa.Array[Any]) -> pa.Array[Any]:
        headers = as_headers(lists)
        asked: Any = names
        keys: list[str] = asked.unique().drop_null().to_pylist()
        made: Any = pa.array([None] * len(lists), wanted)
        for key in keys:
            found = typed_array(locate(headers, [key])[key], wanted, Encoding.AUTO)[0]
            made = pc.if_else(pc.fill_null(pc.equal(asked, pa.scalar(key)), False), found, made)
        return cast("pa.Array[Any]", made)

    return arrow_function(convert, wanted)


def arrow_function(function: Callable[..., pa.Array[Any]], returns: pa.DataType) -> Any:
    """Return a Column function that calls ``function`` with the Arrow arrays of its columns, batch by batch.

    Raises SparkTooOld before Spark 4.1.
    """
    Feature.ARROW_FUNCTIONS.require('format("lading") gives typed columns of headers from 4.0 on')
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]
    from pyspark.sql.pandas.types import from_arrow_type

    # Spark finds the kind of function from its hints, and the stubs' generic arrays do not exist at run time
    function.__annotations__ = dict.fromkeys(function.__annotations__, pa.Array)
    return arrow_udf(function, from_arrow_type(returns))
