"""A table's schema is found without PySpark, and is what Spark's own types give."""

from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StringType, StructType

from lading.columns.contract import FIELD_TYPES, TYPES, parse_columns
from lading.model.errors import SettingError
from lading.spark.types import arrow_schema, resolve_schema, schema_of
from lading.tables.scan.schema import table_schema

EVERY = ", ".join([*FIELD_TYPES, *(f'"a {name}" {name}' for name in TYPES), "strict int be required",
                   "via array<string>", "price decimal(10,2)"])  # fmt: skip


@pytest.mark.parametrize(
    "columns", [EVERY, "offset, carrier string, delay int", "headers", "delay double, payload, delay2 boolean, key"]
)
def test_a_table_has_the_schema_that_spark_would_give_it(columns: str) -> None:
    projection = parse_columns(columns)
    assert table_schema(projection).equals(arrow_schema(schema_of(projection)), check_metadata=True)


def test_every_field_of_a_message_can_be_a_column() -> None:
    assert table_schema(parse_columns(EVERY)).names[: len(FIELD_TYPES)] == list(FIELD_TYPES)


def test_a_field_of_messages_is_not_a_member_of_the_payload() -> None:
    for name, source, path in (("payload", "payload", "payload.payload"), ("offset", "payload.o", "payload.o")):
        schema = StructType().add(name, StringType())
        sentence = f"column '{name}' is a field of every message; name .* column.my_{name}={path}"
        with pytest.raises(SettingError, match=sentence):
            resolve_schema(schema, {name: source}, {})
    # a header of that name is in quotes, as the refusal of its type says
    schema = StructType().add("payload", LongType())
    with pytest.raises(SettingError, match=r'for a header of that name set option column\.payload="payload"'):
        resolve_schema(schema, {}, {})
    (header,) = resolve_schema(schema, {"payload": '"payload"'}, {}).projection.headers
    assert (header.name, header.header) == ("payload", "payload")
