"""``lading demo``, small: every flight is where the flights' own data say it belongs."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from lading import Admin, testing
from lading.cli import demo_kafka
from lading.cli.demo_faults import DAMAGED_EVERY, MISTYPED_EVERY
from lading.cli.demo_kafka import share
from lading.cli.demo_pipeline import BATCHES, choose_batch_rows
from lading.cli.flights import read_table
from lading.model.errors import LocalError
from lading.pipeline.settings import PipelineSettings
from tests.docs.pages import Step, run_here

FLIGHTS = 12_000


def test_a_kafka_client_that_hears_nothing_in_time_says_so() -> None:
    """On a busy machine the demo ended in StopIteration."""
    with testing.broker() as broker:
        Admin(broker.url).create_topic("silent")
        with pytest.raises(LocalError, match=r"no message of 'silent' arrived in 0\.05 s.* try lading demo again"):
            demo_kafka.first(broker.endpoints["kafka"], "silent", 50)


@pytest.mark.parametrize("flights", [100, FLIGHTS, 336_776, 336_777])
def test_no_batch_of_the_demo_is_a_handful(flights: int) -> None:
    """The run of all flights stopped at a batch of eight, of which two were bad."""
    last = flights - (BATCHES - 1) * choose_batch_rows(flights)
    assert flights // 10 < last <= choose_batch_rows(flights)


def fates(flight: dict[str, Any], native: int) -> list[str]:
    """The tables that a flight ends in; ``native`` counts those that were sent carelessly, from 0, else it is -1."""
    if flight["carrier"] == "HA":
        return []
    broken = native >= 0 and (native % DAMAGED_EVERY == 7 or native % MISTYPED_EVERY == 11)
    late = (flight["dep_delay"] or 0) > 60
    end = "quarantine" if broken else "late" if late else "flights"
    # a flight without tail was in quarantine before it was sent again
    return [end] if flight["tailnum"] is not None else ["quarantine", end]


@pytest.mark.turns(2, part=0)
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_demo_adds_up(shared: ProcessPoolExecutor, directory: Path, tmp_path: Path) -> None:
    place = tmp_path / "demo"
    said = tmp_path / "said.txt"
    steps = [
        Step("python", f"import sys\nsys.stdout = sys.stderr = open({str(said)!r}, 'w')\n"),
        Step("sh", "lading demo", ("demo", "--dir", str(place), "--limit", str(FLIGHTS))),
        Step("python", "sys.stdout.close()\nsys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__\n"),
    ]
    failure = shared.submit(run_here, directory, {}, steps).result(280)
    assert failure is None, failure + said.read_text()
    # a run was killed in the middle, and what another one made of it adds up below
    assert "kill -9 of lading pipeline run" in said.read_text()
    assert "mean distance, miles (payload)" in said.read_text()
    flights = read_table().slice(0, FLIGHTS).to_pylist()
    expected = Counter(
        table
        for at, flight in enumerate(flights)
        for table in fates(flight, at - FLIGHTS // 2 if at < FLIGHTS - share(FLIGHTS) else -1)
    )
    tables: dict[str, Any] = {name: ds.dataset(place / "tables" / name, format="parquet") for name in expected}
    tables["flights"] = DeltaTable(place / "tables" / "flights").to_pyarrow_dataset()
    assert {name: table.count_rows() for name, table in tables.items()} == expected
    assert min(expected.values()) > 10
    reasons = Counter(tables["quarantine"].to_table(["reason"])["reason"].to_pylist())
    assert reasons["checksum_mismatch"] >= 1
    assert reasons["bad_value"] >= 2
    settings = PipelineSettings.load(place / "flights.toml")
    assert settings.document.source[0].from_ == "lading://127.0.0.1:7070"
    # the page says what the last screen says: what was sent again is counted, and not twice
    flights_, late = expected["flights"], expected["late"]
    waiting = FLIGHTS - sum(flight["carrier"] == "HA" for flight in flights) - flights_ - late
    page = (place / "report.html").read_text()
    assert "<svg" in page
    end = f"{flights_:,} good + {late:,} routed + {waiting:,} in quarantine = {flights_ + late + waiting:,}"
    assert end in page, page[:3000]
