"""Runs that end before the end of their topic, and the ranges that they read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lading import read_arrow
from lading.model.errors import SettingError
from lading.pipeline.run import run
from lading.pipeline.settings import PipelineSettings

from .conftest import PARTITIONS, ROWS, Place
from .direct import Driver, no_session
from .flights import assert_every_message_once, found


def test_a_run_ends_where_the_file_says_and_the_next_continues(place: Place) -> None:
    counts = Driver(
        place.write(lambda text: text.replace("[headers]", "starting = 100\nending = 700\n\n[headers]"))
    ).run()
    assert counts["read"] == PARTITIONS * 600
    assert {offset for _, offset in found(place.tables)} == set(range(100, 700))
    counts = Driver(place.write()).run()
    assert counts["read"] == PARTITIONS * (ROWS - 700)


def test_the_command_line_bounds_every_source(place: Place) -> None:
    settings = PipelineSettings.load(place.write()).with_range("10", "2026-01-31T12:00")
    assert [(one.starting, one.ending) for one in settings.document.source] == [("10", "2026-01-31T12:00")]
    with pytest.raises(SettingError, match="a run with --follow has no end"):
        run(no_session, settings, follow=True)
    Driver(place.write()).run()
    assert_every_message_once(place.tables, PARTITIONS, ROWS)


def test_read_arrow_takes_the_same_expressions(place: Place) -> None:
    def offsets(start: object, end: object) -> list[object]:
        table = read_arrow(place.url, place.topic, "partition, offset", start=start, end=end, verify_checksum=False)  # type: ignore[arg-type]
        return [row["offset"] for row in table.to_pylist() if row["partition"] == 0]

    assert offsets("5", 8) == [5, 6, 7]
    assert offsets("-2", "now") == offsets(-2, "latest") == [ROWS - 2, ROWS - 1]
    assert offsets("earliest", "2020-01-31T12:00") == offsets("earliest", datetime(2020, 1, 31, 12, tzinfo=UTC)) == []
    with pytest.raises(SettingError, match="begins at offset 8 and ends before it, at offset 5"):
        offsets(8, "5")
    with pytest.raises(SettingError, match="write earliest, latest"):
        offsets("soon", "latest")
