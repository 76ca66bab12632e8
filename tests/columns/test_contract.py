"""The columns a user writes down, and the sentences for what cannot be."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lading.columns.contract import (
    TYPES,
    Encoding,
    HeaderColumn,
    Projection,
    parse_columns,
    parse_header_column,
    parse_type,
    type_word,
    write_column_name,
)  # fmt: skip
from lading.model.errors import SettingError


def test_fields_and_headers_in_the_order_written() -> None:
    projection = parse_columns('offset, carrier string, delay int be required, payload, trace string from "trace id"')
    assert projection.fields == ("offset", "payload")
    assert projection.headers == (
        HeaderColumn("carrier", "carrier", pa.string()),
        HeaderColumn("delay", "delay", pa.int32(), Encoding.BE, required=True),
        HeaderColumn("trace", "trace id", pa.string()),
    )
    assert projection.schema.names == ["offset", "carrier", "delay", "payload", "trace"]
    assert projection.schema.field("delay").type == pa.int32()
    assert projection.header_keys == ("carrier", "delay", "trace id")
    assert projection.column("trace") == projection.headers[2]
    assert projection.column("offset") is None


def test_names_of_any_kind_and_types_with_commas() -> None:
    projection = parse_columns('`x y` decimal( 38, 0 ) json, "a""b" STRING, trace.id bigint, from-x timestamp le')
    assert [(one.name, type_word(one.type), one.encoding) for one in projection.headers] == [
        ("x y", "decimal(38,0)", "json"), ('a"b', "string", "auto"), ("trace.id", "bigint", "auto"),
        ("from-x", "timestamp", "le"),
    ]  # fmt: skip


def test_where_messages_come_from_is_a_column_but_no_field_to_decode() -> None:
    projection = parse_columns("topic, partition, offset")
    assert projection.message_fields == ("offset",)
    assert projection.schema.field("partition").type == pa.int32()


@pytest.mark.parametrize("word", TYPES)
def test_types_and_their_words(word: str) -> None:
    assert type_word(parse_type(word.upper())) == word


def test_sparks_other_words_for_types() -> None:
    assert [type_word(parse_type(word)) for word in ("long", "integer", "short", "byte", "real")] == [
        "bigint", "int", "smallint", "tinyint", "float",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no columns"),
        ("offset,, carrier string", "before a comma"),
        ("carier", "a header needs a type, for example `carier string`"),
        ("offsett", "did you mean 'offset'"),
        ("delay itn", "did you mean 'int'"),
        ("delay decimal(39,2)", "from 1 to 38 digits"),
        ("delay int bee", "did you mean 'be'"),
        ("delay int from", "followed by a header name"),
        ("id string", "my_id string from id"),
        ("carrier string be", "binary numbers"),
        ("a string, a int", "named twice"),
        ("offset, offset", "named twice"),
        ("a string; b int", "';' at character 9"),
        ('"" string', "at least one character"),
    ],
)
def test_what_cannot_be_is_said(text: str, says: str) -> None:
    with pytest.raises(SettingError) as refused:
        parse_columns(text)
    assert says in str(refused.value)


def test_one_column_of_a_contract_file() -> None:
    assert parse_header_column("carrier", "string required") == HeaderColumn(
        "carrier", "carrier", pa.string(), required=True
    )
    with pytest.raises(SettingError, match="no type"):
        parse_header_column("carrier", " ")


def test_a_projection_is_checked_however_it_is_made() -> None:
    with pytest.raises(SettingError, match="not a message field"):
        Projection(("offsets",))
    with pytest.raises(SettingError, match="order"):
        Projection(("offset",), (), ("state",))
    with pytest.raises(SettingError, match="list"):
        HeaderColumn("a", "a", pa.list_(pa.int8()))


NAMES = (
    'carrier trace-id a.b payload payload.x payload.a-b key.x keys.x say"no" a,b é required from decimal(3,1) array<a'
)


@pytest.mark.parametrize("name", [*NAMES.split(), "a b", "`x`"])
def test_a_name_is_read_back_as_it_was_written(name: str) -> None:
    written = write_column_name(name)
    [column] = parse_columns(f"column int from {written}").headers
    assert (column.name, column.header) == ("column", name)
    # a field of messages is not the name of a header's column
    if name != "payload":
        [column] = parse_columns(f"{written} string").headers
        assert (column.name, column.header) == (name, name)
