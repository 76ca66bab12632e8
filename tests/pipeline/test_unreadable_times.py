"""A message whose time is outside the years 1 to 9999: in tables null, counted; quarantined if the file asks for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from lading import Consumer, Producer, testing
from lading.cli.quarantine import app
from lading.pipeline.quarantine import Quarantine
from lading.pipeline.settings import PipelineSettings
from lading.tables.scan.schema import FIELD_TYPES

from .direct import Driver

WRONG_US = 1_764_193_926_000_000_000
PIPELINE = """
[pipeline]
id = "times"
[source]
from = "{url}"
topic = "{topic}"
[headers]
carrier = "string required"
[quality]
max_failure_ratio = 1.0
require_timestamp = {required}
[good]
to = "parquet:./good"
[quarantine]
to = "parquet:./bad"
"""


@pytest.fixture
def url(served: testing.BrokerProcess) -> Iterator[str]:
    yield served.url


def write(base: Path, url: str, topic: str, *, required: bool) -> Path:
    with Producer(url) as producer:
        for row in range(4):
            headers = {"carrier": "UA"} if row != 2 else {}
            time_us = WRONG_US if row in (1, 2) else WRONG_US // 1000
            producer.send(topic, b"%d" % row, headers=headers, timestamp=time_us)
    file = base / "times.toml"
    file.write_text(PIPELINE.format(url=url, topic=topic, required=str(required).lower()))
    return file


def test_it_is_null_in_the_table_and_counted(url: str, tmp_path: Path) -> None:
    counts = Driver(write(tmp_path, url, "times.null", required=False)).run()
    assert (counts["good"], counts["quarantined"], counts["unreadable_times"]) == (3, 1, 2)
    (good,) = (tmp_path / "good").glob("*.parquet")
    assert pq.read_table(good).column("timestamp").is_null().to_pylist() == [False, True, False]


def test_it_goes_to_quarantine_if_times_are_required(url: str, tmp_path: Path) -> None:
    file = write(tmp_path, url, "times.required", required=True)
    counts = Driver(file).run()
    # the checks run in their order: a missing header comes first
    assert (counts["good"], counts["reason.unreadable_time"], counts["reason.missing_header.carrier"]) == (2, 1, 1)
    (row,) = Quarantine(PipelineSettings.load(file)).rows(reasons=["unreadable_time"])
    assert (row["message"], row["header"]) == ("times.required/0/1", None)
    assert "timestamp_us, is outside the years 1 to 9999" in row["detail"]


def test_the_quarantine_shows_and_redrives_the_number(url: str, tmp_path: Path) -> None:
    file = write(tmp_path, url, "times.redriven", required=True)
    Driver(file).run()
    (held,) = (tmp_path / "bad").glob("*.parquet")
    rows = pq.read_table(held)
    assert rows.column("timestamp").null_count == 2
    assert rows.column("timestamp_us").to_pylist() == [WRONG_US, WRONG_US]
    listed = CliRunner().invoke(app, ["list", str(file), "--output", "json"])
    assert listed.exit_code == 0 and len(listed.stdout.splitlines()) == 2
    shown = CliRunner().invoke(app, ["show", str(file), "times.redriven/0/1", "--output", "json"])
    assert json.loads(shown.stdout)["message"]["timestamp_us"] == WRONG_US
    assert Quarantine(PipelineSettings.load(file)).redrive().sent == 2
    times = [message.timestamp_us for message in Consumer(url, "times.redriven", timeout_s=0)]
    assert times[4:] == [WRONG_US, WRONG_US]


def test_tables_of_earlier_releases_are_read(url: str, tmp_path: Path) -> None:
    """They have the number itself in the column of times, and no column beside it."""
    file = write(tmp_path, url, "times.earlier", required=True)
    Driver(file).run()
    (held,) = (tmp_path / "bad").glob("*.parquet")
    rows = pq.read_table(held)
    numbers = rows.column("timestamp_us").cast(FIELD_TYPES["timestamp"])
    pq.write_table(rows.drop_columns(["timestamp_us"]).set_column(
        rows.schema.get_field_index("timestamp"), "timestamp", numbers
    ), held)  # fmt: skip
    quarantine = Quarantine(PipelineSettings.load(file))
    assert quarantine.find("times.earlier/0/1")[0]["timestamp_us"] == WRONG_US
    assert len(list(quarantine.rows())) == 2
