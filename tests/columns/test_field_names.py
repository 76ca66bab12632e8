"""Near misses of message field names are refused with the field meant; headers that nobody had are told."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from lading.columns.contract import FIELD_TYPES, parse_columns
from lading.columns.field_names import field_meant
from lading.columns.locate import locate
from lading.columns.seen_headers import NAMES_SHOWN_MAX, SeenHeaders, unseen_sentence
from lading.columns.statistics import HeaderStatistics
from lading.filter.parse import parse
from lading.model.batch import HEADERS_TYPE
from lading.model.errors import FilterError, SettingError


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("ofset", "offset"), ("Offset", "offset"), ("offfset", "offset"), ("offest", "offset"), ("offzet", "offset"),
        ("value", "payload"), ("Value", "payload"), ("time_stamp", "timestamp"), ("check-sum", "checksum"),
        ("keys", "key"), ("ID", "id"), ("partitio", "partition"), ("header", "headers"),
        ("carrier", None), ("id2", None), ("upstream", None), ("estate", None), ("status", None),
        ("timestamp_ms", None), ("offset", None), ("", None),
    ],
)  # fmt: skip
def test_a_near_miss_is_one_letter_or_spelling_away(name: str, field: str | None) -> None:
    assert field_meant(name, FIELD_TYPES) == field


@pytest.mark.parametrize("columns", ["ofset bigint", "offset, value binary", "ofset", "value", '"Offset" bigint'])
def test_columns_refuse_a_near_miss_with_the_field_meant(columns: str) -> None:
    with pytest.raises(SettingError, match=r"did you mean '(offset|payload)'\? For a header of that name write"):
        parse_columns(columns)


def test_a_header_of_such_a_name_is_read_when_it_is_said_so() -> None:
    (column,) = parse_columns("value string from value").headers
    assert (column.name, column.header) == ("value", "value")
    assert parse("header('ofset') > 3").header_keys == ("ofset",)
    assert parse("value = 'x'", parse_columns("value string from value")).header_keys == ("value",)


@pytest.mark.parametrize("where", ["ofset > 3", "value = 'x'", "carrier = 'UA' AND time_stamp > '2024-01-01'"])
def test_a_filter_refuses_a_near_miss_with_the_field_meant(where: str) -> None:
    with pytest.raises(FilterError, match=r"did you mean '(offset|payload|timestamp)'\? header\('"):
        parse(where)


def test_suggested_columns_can_be_read_back_where_a_header_is_called_nearly_as_a_field() -> None:
    statistics = HeaderStatistics()
    rows = [[{"key": "value", "kind": 2, "value": b"x"}, {"key": "ofset", "kind": 2, "value": b"y"}]]
    statistics.add(pa.RecordBatch.from_arrays([pa.array(rows, HEADERS_TYPE)], ["headers"]))
    columns = parse_columns(", ".join(statistics.suggest_columns()))
    assert [(one.name, one.header) for one in columns.headers] == [("value", "value"), ("ofset", "ofset")]


def test_headers_that_no_message_had_are_told_with_the_names_seen() -> None:
    headers = pa.array([[{"key": "carrier", "kind": 2, "value": b"UA"}], [{"key": "via", "kind": 1, "value": None}]],
                       HEADERS_TYPE)  # fmt: skip
    first, second = SeenHeaders(["carier", "via"]), SeenHeaders(["carier", "via"])
    first.add_located(locate(headers, ["carier", "via"]))
    assert first.unseen == ("carier",), "a null header was there"
    second.add_headers(headers)
    first.merge(pickle.loads(pickle.dumps(second)))
    assert first.sentences("the 2 messages of 't'") == [
        "none of the 2 messages of 't' has a header 'carier' (did you mean 'carrier'?); "
        "the headers seen are 'carrier', 'via'"
    ]


def test_a_long_list_of_names_is_cut_and_none_at_all_is_said() -> None:
    names = [f"h{number}" for number in range(NAMES_SHOWN_MAX + 3)]
    assert unseen_sentence("x", names, "them").endswith(" and 3 more")
    assert unseen_sentence("x", [], "them") == "none of them has a header 'x'; no header was seen at all"
