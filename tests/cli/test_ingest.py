"""``lading ingest`` as a user calls it: what the table keeps unless told otherwise, and what is said of it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from lading import Producer, testing, u16
from lading.cli.connection import header_statistics
from lading.cli.ingest import infer_columns, proposal
from lading.columns.contract import parse_columns
from lading.columns.statistics import HeaderStatistics
from lading.model.headers import Headers
from tests.columns.values import headers_array
from tests.spark.conftest import spark

from .conftest import Run

__all__ = ["spark"]


@pytest.fixture
def topic(broker: testing.BrokerProcess) -> str:
    with Producer(broker.url) as producer:
        producer.send("kept", b"one", key=b"k", headers=[("carrier", "UA"), ("delay", u16(12))])
        producer.send("kept", b"two", headers=[("carrier", "AA\n")])
    return "kept"


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("spark")
def test_a_table_keeps_what_a_message_is(lading: Run, topic: str, tmp_path: Path) -> None:
    said = lading("ingest", topic, str(tmp_path / "table")).stderr
    rows = sorted(
        ds.dataset(tmp_path / "table", format="parquet").to_table().to_pylist(), key=lambda row: row["offset"]
    )
    assert [list(row) for row in rows] == [
        ["partition", "offset", "timestamp", "key", "carrier", "delay", "payload"]
    ] * 2
    assert [(row["partition"], row["key"], row["delay"], row["payload"]) for row in rows] == [
        (0, b"k", 12, b"one"), (0, None, None, b"two"),
    ]  # fmt: skip
    assert "#   delay int                # 50.0 % have it, uint16: 12" in said


def test_types_are_proposed_as_comments_with_the_option_to_change_them(
    broker: testing.BrokerProcess, topic: str
) -> None:
    statistics = header_statistics(broker.url, topic)
    columns = infer_columns(statistics)
    lines = list(proposal(statistics, columns))
    assert all(line.startswith("#") and "\n" not in line for line in lines)
    option, value = shlex.split(lines[-1].partition(": ")[2])
    assert (option, value) == ("--columns", columns)
    assert parse_columns(value).order == ("partition", "offset", "timestamp", "key", "carrier", "delay", "payload")


def test_a_line_end_in_a_header_key_begins_no_line_of_the_proposal() -> None:
    key = "ok\nlading: 0 rows lost\x1b[31m"
    statistics = HeaderStatistics()
    statistics.add(pa.record_batch([headers_array([list(Headers([(key, "1")]))])], names=["headers"]))
    columns = infer_columns(statistics)
    assert key in parse_columns(columns).order
    lines = list(proposal(statistics, columns))
    assert all(line.startswith("#") and line.isprintable() for line in lines)
    assert sum("lading: 0 rows lost" in line for line in lines) == 2


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_a_shell_reads_the_proposal_as_it_is_meant() -> None:
    """Whatever characters the keys of headers have; a NUL, which no argument can have, is left out."""
    keys = [
        "a\nb",
        "\u202eabc",
        "it's",
        "a\\nb",
        "\x1b[31m",
        "\x85",
        "\ufeff",
        "\U000e0001",
        "\x01f",
        "a\x00b",
        "$HOME",
        "é",
    ]
    statistics = HeaderStatistics()
    statistics.add(pa.record_batch([headers_array([list(Headers([(key, "1") for key in keys]))])], names=["headers"]))
    *_, line = proposal(statistics, infer_columns(statistics))
    assert line.isprintable()
    command = f"printf %s {line.partition('--columns ')[2]}"
    read = subprocess.run(
        ["bash", "-c", command], capture_output=True, check=True, timeout=30, env={"LC_ALL": "C.UTF-8"}
    ).stdout.decode()
    assert [key for key in parse_columns(read).order if key in keys] == [key for key in keys if "\0" not in key]


def test_a_new_table_begins_where_starting_says(lading: Run, topic: str, tmp_path: Path) -> None:
    def ingest(name: str, starting: str, code: int = 0) -> tuple[list[Any], str]:
        table = tmp_path / name
        words = ("ingest", topic, str(table), "--local", "--columns", "offset", "--starting", starting)
        said = lading(*words, code=code).stderr
        rows = [pq.read_table(file, partitioning=None)["offset"].to_pylist() for file in table.glob("*.parquet")]
        return [offset for offsets in rows for offset in offsets], said

    (everything, _), (kept, _) = ingest("all", "earliest"), ingest("all", "latest")
    assert len(everything) >= 2 and kept == everything
    assert ingest("offsets", f'{{"0": {everything[-1]}}}')[0] == everything[-1:]
    assert ingest("past", "2020-01-31T12:00Z")[0] == everything
    assert ingest("future", "2999-01-31T12:00Z")[0] == ingest("latest", "latest")[0] == []
    assert ingest("number", str(everything[-1]))[0] == ingest("last", "-1")[0] == everything[-1:]
    assert "it takes earliest, latest" in ingest("word", "soon", code=2)[1]


def test_a_run_ends_where_ending_says_and_the_next_continues(lading: Run, topic: str, tmp_path: Path) -> None:
    def ingest(*more: str, code: int = 0) -> tuple[list[Any], str]:
        words = ("ingest", topic, str(tmp_path / "t"), "--local", "--columns", "offset", *more)
        said = lading(*words, code=code).stderr
        rows = [pq.read_table(file, partitioning=None)["offset"].to_pylist() for file in (tmp_path / "t").glob("*.p*")]
        return sorted(offset for offsets in rows for offset in offsets), said

    assert "begins at offset 1 and ends before it, at offset 0" in ingest("--starting", "1", "--ending", "0", code=2)[1]
    backwards = ("--starting", "2026-02-01", "--ending", "2026-01-01")
    assert "begins at 2026-02-01T00:00:00+00:00 and ends before it" in ingest(*backwards, code=2)[1]
    assert "a run with --follow has no end" in ingest("--follow", "--ending", "1", code=2)[1]
    assert ingest("--ending", "2020-01-31")[0] == []
    assert ingest("--ending", "1")[0] == [0]
    assert ingest("--ending", "1")[0] == [0]
    assert ingest("--ending", "now")[0][:2] == [0, 1]
