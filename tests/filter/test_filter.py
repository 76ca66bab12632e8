"""What a filter means and what it refuses, sentence by sentence of docs/reference/filter."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from lading.columns.contract import parse_columns
from lading.filter.grammar import DEPTH_MAX, TEXT_CHARACTERS_MAX
from lading.filter.parse import parse
from lading.filter.tree import Compare, Domain
from lading.model.batch import SCHEMA
from lading.model.errors import FilterError, LocalError
from lading.model.headers import Headers, HeadersLike
from lading.model.run import Decoded
from lading.model.state import State
from lading.model.values import f64, i32, u64, u128

CONTRACT = parse_columns('carrier string, delay int, late boolean, at timestamp, lag int be from "x-lag"')


def batch(*messages: HeadersLike, **columns: list[Any]) -> pa.RecordBatch:
    rows = [
        {
            "offset": at,
            "state": State.AVAILABLE,
            "timestamp": datetime(2024, 5, 1, 12, at, tzinfo=UTC),
            "headers": [one._asdict() for one in Headers(message)],
        }
        | {name: values[at] for name, values in columns.items()}
        for at, message in enumerate(messages)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


FLIGHTS = batch(
    {"carrier": "UA", "delay": i32(20)},
    {"carrier": "AA", "delay": f64(15.5)},
    {"carrier": "UA", "delay": "12"},
    {"carrier": "DL", "delay": None},
    {"delay": "soon"},
)


def found(text: str, rows: pa.RecordBatch = FLIGHTS, **arguments: Any) -> list[bool | None]:
    result: list[bool | None] = parse(text, **arguments).mask(rows).to_pylist()
    return result


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("carrier = 'UA'", [True, False, True, False, None]),
        ("carrier <> 'UA'", [False, True, False, True, None]),
        ("carrier IN ('UA', 'DL')", [True, False, True, True, None]),
        ("carrier NOT IN ('UA', NULL)", [False, None, False, None, None]),
        ("carrier LIKE '_A'", [True, True, True, False, None]),
        ("carrier IS NULL", [False, False, False, False, True]),
        ("carrier IS NOT NULL", [True, True, True, True, False]),
        ("delay > 15", [True, True, False, None, None]),
        ("delay >= 15.5", [True, True, False, None, None]),
        ("delay BETWEEN 12 AND 16", [False, True, True, None, None]),
        ("delay = '12'", [False, False, True, None, False]),
        ("delay IS NULL", [False, False, False, True, False]),
        ("CAST(delay AS int) IS NULL", [False, True, False, True, True]),
        ("CAST(delay AS string) LIKE '1%'", [False, True, True, None, False]),
        ("NOT carrier = 'UA'", [False, True, False, True, None]),
        ("carrier = 'UA' AND delay > 15", [True, False, False, False, None]),
        ("carrier = 'UA' OR delay > 15", [True, True, True, None, None]),
        ("carrier = 'UA' OR offset = 3 AND delay > 0", [True, False, True, None, None]),
        ("(carrier = 'UA' OR offset = 3) AND delay > 13", [True, False, False, None, None]),
        ("carrier = NULL", [None] * 5),
        ("15 < delay", [True, True, False, None, None]),
        ("-1 < delay", [True, True, True, None, None]),
        ("header('carrier') = 'DL'", [False, False, False, True, None]),
        ("\"carrier\" == 'DL' -- a comment", [False, False, False, True, None]),
        ("TRUE", [True] * 5),
        ("1 = 2", [False] * 5),
        ("carrier = delay", [False, False, False, None, None]),
    ],
)
def test_conditions_over_headers(text: str, expected: list[bool | None]) -> None:
    assert found(text) == expected
    assert parse(text).selects(FLIGHTS).to_pylist() == [one is True for one in expected]


def test_message_fields() -> None:
    rows = batch(
        {}, {}, {},
        state=[1, 20, 30], id=[b"\x01" * 16, None, bytes(16)], checksum=[1, 2**32 - 1, None],
        key=[b"N14228", None, b"12"], payload=[b"", b"\xff", None],
    )  # fmt: skip
    assert found("state <> 'poisoned'", rows) == [True, False, True]
    assert found("state IN ('poisoned', 'marked_for_deletion')", rows) == [False, True, True]
    assert found("state LIKE '%tion'", rows) == [False, False, True]
    assert found("offset BETWEEN 1 AND 2", rows) == [False, True, True]
    assert found("timestamp >= '2024-05-01T12:01:00Z'", rows) == [False, True, True]
    assert found("timestamp < '2024-05-01 14:01:00+02:00'", rows) == [True, False, False]
    assert found("id = '01010101-0101-0101-0101-010101010101'", rows) == [True, None, False]
    assert found(f"id IN ('{'00' * 16}')", rows) == [False, None, True]
    assert found("checksum > 4294967294", rows) == [False, True, None]
    assert found("key = 'N14228'", rows) == [True, None, False]
    assert found("key = 12", rows) == [None, None, True]
    assert found("payload = ''", rows) == [True, None, None]
    assert found("payload IS NULL", rows) == [False, False, True]


def test_any_looks_at_every_value_of_a_header() -> None:
    rows = batch(
        [("via", "a"), ("via", "b")], [("via", "c")], [("via", "a"), ("via", None)], [("via", None), ("via", "c")], []
    )
    assert found("via = 'a'", rows) == [False, False, None, False, None]
    assert found("any(via) = 'a'", rows) == [True, False, True, None, False]
    assert found("NOT any(via) = 'a'", rows) == [False, True, False, None, True]
    assert found("any(via) <> 'a'", rows) == [True, True, None, True, False]
    assert found("any(via) IN ('b', 'c')", rows) == [True, True, None, True, False]
    assert found("any(via) BETWEEN 'b' AND 'b'", rows) == [True, False, None, None, False]
    assert found("any(via) IS NULL", rows) == [False, False, True, True, False]
    assert found("any(header('via')) = 'a' AND offset > 0", rows) == [False, False, True, None, False]
    assert found("CAST(any(via) AS string) = 'a'", rows) == [True, False, True, None, False]


@pytest.mark.parametrize("repeated", [1, 15])
def test_present_tells_null_from_absent(repeated: int) -> None:
    messages: list[HeadersLike] = [{"carrier": "UA", "x-lag": None}, {"carrier": None}, {"delay": "soon"}, {}]
    rows = batch(*messages * repeated)
    expected = {
        "present(carrier)": [True, True, False, False],
        "NOT present(carrier)": [False, False, True, True],
        "present(carrier) AND carrier IS NULL": [False, True, False, False],
        "present(header('x-lag'))": [True, False, False, False],
        "present(delay) OR offset < 0": [False, False, True, False],
    }
    for text, each in expected.items():
        assert found(text, rows) == each * repeated
        assert found(text, rows, contract=CONTRACT) == each * repeated
    assert parse("PRESENT(carrier) AND present = 'x'").header_keys == ("carrier", "present")


def test_numbers_are_compared_exactly_beyond_what_doubles_hold() -> None:
    rows = batch({"n": u64(2**53)}, {"n": u64(2**53 + 1)}, {"n": u128(2**128 - 1)}, {"n": "9007199254740993"})
    assert found("n = 9007199254740993", rows) == [False, True, False, True]
    assert found("n > 9007199254740992", rows) == [False, True, True, True]
    assert found("n IN (9007199254740993, 1)", rows) == [False, True, False, True]
    assert found("n > 99999999999999999999999999999999999999", rows) == [False, False, True, False]
    assert found("n = 9007199254740993.0", rows) == [True, True, False, True]


def test_nan_equals_itself_and_is_above_all() -> None:
    rows = batch({"x": f64(float("nan"))}, {"x": f64(float("inf"))}, {"x": f64(-0.0)}, {"x": "NaN"})
    assert found("x > 1.0", rows) == [True, True, False, True]
    assert found("x = CAST('nan' AS double)", rows) == [True, False, False, True]
    assert found("x < CAST('nan' AS double)", rows) == [False, True, True, False]
    assert found("x = 0.0", rows) == [False, False, True, False]
    assert found("x IN (0.0)", rows) == [False, False, True, False]
    assert found("x > 1", rows) == [True, True, False, True]


def test_a_contract_gives_types_encodings_and_names() -> None:
    rows = batch(
        {"carrier": "UA", "delay": "12", "late": "true", "at": "2024-05-01", "x-lag": b"\x00\x00\x00\x0c"},
        {"delay": "1.5", "late": "no", "at": "soon", "x-lag": b"12"},
    )
    assert found("delay = 12", rows, contract=CONTRACT) == [True, None]
    assert found("delay < 12.5", rows, contract=CONTRACT) == [True, None]
    assert found("delay IS NULL", rows, contract=CONTRACT) == [False, True]
    assert found("late", rows, contract=CONTRACT) == [True, None]
    assert found("NOT late OR carrier = 'UA'", rows, contract=CONTRACT) == [True, None]
    assert found("at < '2024-05-02'", rows, contract=CONTRACT) == [True, None]
    assert found("lag = 12", rows, contract=CONTRACT) == [True, None]
    assert found("header('x-lag') = 12", rows, contract=CONTRACT) == [True, None]
    assert parse("lag = 12", CONTRACT).header_keys == ("x-lag",)


def test_words_of_sql_can_name_headers() -> None:
    rows = batch({"order": "1", "date": "x", "select": "s", "trace.id": "t", "ünï": "u", "x y": "v"})
    for text in (
        "order = 1",
        "date = 'x'",
        "select = 's'",
        "trace.id = 't'",
        "ünï = 'u'",
        "\"x y\" = 'v'",
        "any(\"x y\") = 'v'",
    ):
        assert found(text, rows) == [True]
    assert found("header = 1 OR any IS NULL AND cast IS NULL", rows) == [True]


def test_what_must_be_decoded_for_a_filter() -> None:
    filter_ = parse(
        "carrier = 'UA' AND (any(via) = 'x' OR offset > 3) AND carrier <> header('b') AND state = 'available'"
    )
    assert filter_.header_keys == ("b", "carrier")
    assert filter_.fields == {"headers", "offset", "state"}
    assert str(filter_) == filter_.text
    assert parse("carrier = 'x'").fields == frozenset()
    for text, says in (
        ("carrier = 'x'", "header 'carrier'"),
        ("offset = 1", "field 'offset'"),
        ("any(a) = 1", "'headers'"),
    ):
        with pytest.raises(LocalError, match=says):
            parse(text).mask(Decoded(1, {}, {}))


def test_constants_are_typed_with_what_they_meet() -> None:
    tree = parse("delay > 15").tree
    assert isinstance(tree, Compare)
    assert tree.domain is Domain.NUMBER
    for text, domain in (
        ("delay > 1.5", Domain.DOUBLE),
        ("delay > '1'", Domain.TEXT),
        ("delay = true", Domain.BOOLEAN),
    ):
        tree = parse(text).tree
        assert isinstance(tree, Compare)
        assert tree.domain is domain


def test_no_rows() -> None:
    empty = batch()
    for text in ("carrier = 'UA'", "any(carrier) = 'UA'", "delay > 1", "TRUE", "state = 'poisoned'"):
        assert found(text, empty) == []


@pytest.mark.parametrize(
    ("text", "says", "mark"),
    [
        ("dely > 15", "unknown header 'dely' (did you mean 'delay'?)", "dely"),
        ("carrier = 'UA' AND offsett > 15", "did you mean 'offset'", "offsett"),
        ("delay = '15'", "header 'delay' (int) is compared with the text '15'", "delay = '15'"),
        ("carrier > 5", "header 'carrier' (string) is compared with the number 5", "carrier > 5"),
        ("delay > late", "header 'late' (boolean)", "delay > late"),
        ("late > TRUE", "no order", "late"),
        ("at > 5", "compared with a text such as", "at > 5"),
        ("at > 'noon'", "is not a timestamp", "at > 'noon'"),
        ("state = 20", "compared with its word", "state = 20"),
        ("state = 'poisned'", "did you mean 'poisoned'", "state = 'poisned'"),
        ("id = 'xyz'", "is not a message id", "id = 'xyz'"),
        ("header('a') < header('b')", "CAST(name AS bigint)", "header('a') < header('b')"),
        ("delay", "not a condition", "delay"),
        ("carrier LIKE delay", "pattern in quotes", "carrier LIKE delay"),
        ("delay LIKE '1%'", "CAST(name AS string)", "delay LIKE '1%'"),
        (r"carrier LIKE 'a\b'", "backslash", r"carrier LIKE 'a\b'"),
        ("carrier IN (delay)", "list of constants", "carrier IN (delay)"),
        ("carrier IN ()", "IN", None),
        ("any(delay) = any(carrier)", "once", None),
        ("any(5) = 5", "any takes one header", None),
        ("header(carrier) = 5", "in quotes", None),
        ("header() = 5", "in quotes", None),
        ("header(5) = 5", "in quotes", None),
        ("present(5)", "present takes one header", "present(5)"),
        ("present(any(delay))", "present takes one header", None),
        ("present(offset)", "present takes one header", "present(offset)"),
        ("present(delay, late)", "present takes one header", None),
        ("present(dely)", "unknown header 'dely'", "dely"),
        ("present(delay) = TRUE", "condition by itself and cannot be compared", "present(delay)"),
        ("sum(delay) > 5", "function 'sum' does not exist", "sum"),
        ("delay + 1 > 5", "arithmetic is not supported", "+"),
        ("lag-x > 5", "header('a-b')", "lag-x"),
        ("header('a')-header('b') > 5", "header('a-b')", "header('a')-header('b')"),
        ("-carrier = 5", "arithmetic is not supported", "carrier"),
        ("late IS TRUE", "IS is followed by NULL", None),
        ("headers = 5", "as a whole", "headers"),
        ("CAST(delay AS itn) > 5", "did you mean 'int'", None),
        ("CAST('x' AS int) > 5", "cannot be read as int", "'x'"),
        ("CAST(timestamp AS bigint) > 5", "timestamp", None),
        ("CAST(offset AS timestamp) > '2024-01-01'", "timestamp", None),
        ("carrier = 'UA' extra", "syntax error in the filter", "extra"),
        ("carrier =", "syntax error in the filter", None),
        ("carrier = 'UA", "not closed", "'"),
        ("carrier = 'UA'; DROP TABLE x", "one condition", ";"),
        ("(carrier = 'UA'", "syntax error in the filter", None),
        ("carrier = 'UA')", "closes nothing", ")"),
        ("delay = 1 = 1", "cannot be compared", None),
        ("carrier = (SELECT 1)", "syntax error in the filter", None),
        ("EXISTS (SELECT 1)", "does not exist; functions are", "EXISTS"),
        ("CASE WHEN late THEN 1 END = 1", "syntax error in the filter", None),
        ("carrier = 'a' 'b'", "cannot be compared", None),
        ("delay = " + "9" * 39, "38 digits", "9" * 39),
        ("", "empty", None),
        (" \n ", "empty", None),
        ("carrier = '\ud800'", "UTF-8", None),
    ],
)  # fmt: skip
def test_what_is_refused_and_how_it_is_said(text: str, says: str, mark: str | None) -> None:
    with pytest.raises(FilterError) as refused:
        parse(text, CONTRACT)
    message = str(refused.value)
    assert says in message
    if mark is not None:
        _, shown, marks = message.splitlines()
        at = marks.index("^")
        assert shown[at : at + marks.count("^")] == mark
        assert refused.value.at == text.index(mark)


def test_the_line_that_is_wrong_is_shown() -> None:
    with pytest.raises(FilterError) as refused:
        parse("carrier = 'UA'\n  AND dely > 5\n  AND delay < 9", CONTRACT)
    assert str(refused.value).splitlines()[1:] == ["      AND dely > 5", "          ^^^^"]
    assert refused.value.at == 21


def test_a_long_line_is_cut_around_the_place() -> None:
    text = " OR ".join(["delay = 1"] * 100) + " OR dely = 1"
    with pytest.raises(FilterError) as refused:
        parse(text, CONTRACT)
    _, shown, marks = str(refused.value).splitlines()
    assert len(shown) < 120
    assert shown[marks.index("^") :].startswith("dely")


@pytest.mark.parametrize("opened", ["(", "NOT ", "NOT (", "- ", "(-", "any(", "CAST(", "header("])
def test_nesting_is_bounded_before_the_parser_recurses(opened: str) -> None:
    with pytest.raises(FilterError):
        parse(opened * 5000 + "delay")
    with pytest.raises(FilterError):
        parse(opened * (DEPTH_MAX + 1) + "delay" + ")" * (DEPTH_MAX + 1))


def test_what_is_nested_as_deep_as_allowed_is_read() -> None:
    assert found("(" * DEPTH_MAX + "delay > 15" + ")" * DEPTH_MAX) == [True, True, False, None, None]
    assert found("NOT " * DEPTH_MAX + "delay > 15") == [True, True, False, None, None]


def test_length_is_bounded_and_long_flat_filters_are_read() -> None:
    with pytest.raises(FilterError, match="characters"):
        parse("a" * (TEXT_CHARACTERS_MAX + 1))
    with pytest.raises(FilterError, match="words"):
        parse("a," * 6000)
    assert found(" OR ".join(f"delay = {at}" for at in range(2000))) == [True, False, True, None, None]
    many = ", ".join(f"'{at}'" for at in range(4000))
    assert found(f"carrier IN ({many}, 'UA')") == [True, False, True, False, None]


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("tenant = acme", ("acme",)),
        ('tenant = "acme"', ("acme",)),
        ("tenant <> (acme) OR delay BETWEEN low AND 5", ("acme", "low")),
        ("tenant = 'acme' AND acme = 'x'", ()),
        ("tenant = header('acme') OR delay > offset", ()),
    ],
)
def test_names_where_a_text_may_be_meant_are_known(where: str, names: tuple[str, ...]) -> None:
    assert parse(where).unquoted == names
