"""``lading sql``: every column and value of a result is shown, wherever the command runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lading import Producer, f64, testing
from lading.cli.output import json_line
from lading.cli.result_values import distinguish_names, read_values

from .conftest import Run

duckdb = pytest.importorskip("duckdb")
NO_SERVER = ("--from", "lading://127.0.0.1:1")


@pytest.mark.parametrize(
    ("names", "distinct"),
    [
        (["delay", "delay"], ["delay", "delay_1"]),
        (["delay", "delay", "delay_1", "delay"], ["delay", "delay_2", "delay_1", "delay_3"]),
        (["", ""], ["", "_1"]),
    ],
)
def test_columns_of_one_name_get_numbers(names: list[str], distinct: list[str]) -> None:
    assert distinguish_names(names) == distinct


def test_two_columns_of_one_name_are_shown(lading: Run) -> None:
    query = "select a.delay, b.delay from (select 31 as delay) a, (select 47 as delay) b"
    assert json.loads(lading("sql", query, *NO_SERVER, "--output", "json").stdout) == {"delay": 31, "delay_1": 47}
    heading, *_, row = lading("sql", query, *NO_SERVER).stdout.strip().splitlines()
    assert (heading.split(), row.split()) == (["delay", "delay_1"], ["31", "47"])


DUCKDB_VALUES = [
    ("'infinity'::timestamp", "infinity"),
    ("'-infinity'::timestamptz", "-infinity"),
    ("'-infinity'::date", "-infinity"),
    ("'294000-01-01'::date", f"{10957 + 730 * 146097} days since 1970"),
    ("make_timestamp(253402300800000000)", "253402300800000000 µs since 1970"),
    ("timestamp_ns '2026-01-01 00:00:00.123456789'", "2026-01-01 00:00:00.123456789"),
    ("timestamp '2026-01-01 00:00:00'", "2026-01-01 00:00:00"),
    ("timestamptz '2026-01-01 00:00:00.5+02'", "2025-12-31 22:00:00.500000+00:00"),
    ("date '2026-01-31'", "2026-01-31"),
    ("{'a': 'x'::blob, 't': 'infinity'::date}", {"a": "x", "t": "infinity"}),
    ("[1, null]", [1, None]),
    ("['infinity'::date, null]", ["infinity", None]),
    ("map {'k': '\\xff'::blob}", [("k", "ff")]),
    ("null::blob[]", None),
    ("'a'::enum('a', 'b')", "a"),
]


@pytest.mark.parametrize(("expression", "value"), DUCKDB_VALUES)
def test_values_that_python_has_not_are_texts(expression: str, value: Any) -> None:
    column = duckdb.connect().sql(f"select {expression} as v").to_arrow_reader(1).read_all()["v"]
    assert read_values(column.combine_chunks()) == [value]


def test_nanoseconds_of_a_table_are_shown(lading: Run, tmp_path: Path) -> None:
    times = pa.array([1767225600123456789], pa.timestamp("ns", "UTC"))
    pq.write_table(pa.table({"t": times}), tmp_path / "a.parquet")
    shown = lading("sql", "select t from n", "--table", f"n={tmp_path}", *NO_SERVER, "--output", "json").stdout
    assert json.loads(shown)["t"].startswith("2026-01-01 00:00:00.123456")


@pytest.mark.parametrize("text", ["0.123456789", "12.345678", "1e+308", "5e-324", "-0.0", "1234567.25", "nan", "-inf"])
def test_fractions_are_shown_with_all_their_digits(lading: Run, text: str) -> None:
    """A number that is copied from the terminal is the number of the result."""
    shown = lading("sql", f"select '{text}'::double as v", *NO_SERVER).stdout
    assert shown.split()[-1] == text


def test_numbers_that_json_has_not_are_texts(capsys: pytest.CaptureFixture[str]) -> None:
    json_line({"d": [float("nan"), float("-inf"), 1.5], "e": {"f": float("inf")}})
    assert json.loads(capsys.readouterr().out) == {"d": ["nan", "-inf", 1.5], "e": {"f": "inf"}}


def test_header_keys_are_escaped_for_terminals(broker: testing.BrokerProcess, lading: Run) -> None:
    with Producer(broker.url) as producer:
        producer.send(
            "odd",
            b"x",
            headers=[("k\x1b[31mred", "v"), ("o\u202eabc", "v"), ("[bold]b", "v"), ("d", f64(float("nan")))],
        )
    shown = lading("sql", "select * from odd", "--from", broker.url).stdout
    assert all(text in shown for text in (r"k\x1b[31mred", r"o\u202eabc", "[bold]b", "nan"))
    assert "\x1b" not in shown
    assert "\u202e" not in shown


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_the_machines_time_zone_changes_nothing(lading: Run, monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    monkeypatch.setenv("TZ", zone)
    query = "select current_setting('TimeZone') as zone, '2026-04-01 00:00:00'::timestamptz::varchar as time"
    shown = lading("sql", query, *NO_SERVER, "--output", "json").stdout
    assert json.loads(shown) == {"zone": "UTC", "time": "2026-04-01 00:00:00+00"}
