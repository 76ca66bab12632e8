"""A header may have any name; the field that was meant is told if no message has a header of that name."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from lading.columns.contract import FIELD_TYPES, parse_columns
from lading.columns.field_names import field_meant
from lading.columns.seen_headers import NAMES_SHOWN_MAX, SeenHeaders, unseen_sentence
from lading.columns.statistics import HeaderStatistics
from lading.filter.parse import parse
from lading.model.batch import HEADERS_TYPE
from lading.model.errors import SettingError


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


@pytest.mark.parametrize("columns", ["ofset", "value", "Offset"])
def test_a_name_without_a_type_is_refused_with_the_field_meant(columns: str) -> None:
    with pytest.raises(SettingError, match=r"did you mean '(offset|payload)'\?\); a header needs a type"):
        parse_columns(columns)


@pytest.mark.parametrize("name", ["key_1", "key_2", "key-3", "keys", "value", "ofset", "ID", "Offset"])
def test_a_name_with_a_type_is_a_header_however_near_a_field_it_is(name: str) -> None:
    """``key_1`` is the name of a header in Iggy's own examples."""
    (column,) = parse_columns(f'"{name}" string').headers
    assert (column.name, column.header) == (name, name)
    assert parse(f"\"{name}\" = 'x'").header_keys == (name,)
    assert parse(f"header('{name}') = 'x'").header_keys == (name,)


def test_a_header_that_no_message_had_is_told_with_the_field_that_was_meant() -> None:
    assert "as the column `NAME string from payload.order_id`" in unseen_sentence("payload.order_id", ["a"], "them")
    assert "decode(key) ->> 'NAME'" in unseen_sentence("key.id", None, "them")
    assert unseen_sentence("offset.x", None, "them") == "none of them has a header 'offset.x'"
    assert unseen_sentence("ofset", ["offsets"], "them") == (
        "none of them has a header 'ofset' (did you mean the field 'offset'?); the headers seen are 'offsets'"
    )
    assert unseen_sentence("value", None, "them").endswith("a header 'value' (did you mean the field 'payload'?)")


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
    first.add_headers(headers)
    assert first.unseen == ("carier",), "a null header was there"
    second.add_headers(headers)
    first.merge(pickle.loads(pickle.dumps(second)))
    assert first.sentences("the 2 messages of 't'") == [
        "none of the 2 messages of 't' has a header 'carier' (did you mean 'carrier'?); "
        "the headers seen are 'carrier', 'via'"
    ]


def test_names_that_only_another_part_of_a_run_saw_are_named_too() -> None:
    first, second = SeenHeaders(["carier"]), SeenHeaders(["carier"])
    first.add_headers(pa.array([[{"key": "via", "kind": 2, "value": b"ORD"}]], HEADERS_TYPE))
    second.add_headers(pa.array([[{"key": "carrier", "kind": 2, "value": b"UA"}]], HEADERS_TYPE))
    first.merge(second)
    assert first.sentences("the 2 messages of 't'") == [
        "none of the 2 messages of 't' has a header 'carier' (did you mean 'carrier'?); "
        "the headers seen are 'via', 'carrier'"
    ]


def test_a_long_list_of_names_is_cut_and_none_at_all_is_said() -> None:
    names = [f"h{number}" for number in range(NAMES_SHOWN_MAX + 3)]
    assert unseen_sentence("x", names, "them").endswith(" and 3 more")
    assert unseen_sentence("x", [], "them") == "none of them has a header 'x'; no header was seen at all"


def test_a_long_name_among_those_seen_is_cut() -> None:
    """Kafka's clients may name a header with 30,000 characters, which filled the screen for each unknown column."""
    sentence = unseen_sentence("nope", ["a", "x" * 30_000], "the messages")
    assert "headers seen are 'a', 'xxx" in sentence and len(sentence) < 300
