"""Pipelines whose tables are on an S3 server, read back by readers nobody here wrote."""

from __future__ import annotations

from typing import Any

import pytest

from lading.model.errors import SettingError
from lading.pipeline.plan import Plan
from lading.pipeline.quarantine import Quarantine
from lading.pipeline.settings import PipelineSettings
from tests.tables.object_forms import FORMS, read_parquet

from .conftest import PARTITIONS, ROWS, Place
from .direct import Crash, Driver, checked
from .flights import fate
from .test_crashes import PHASES, Striker, _break_errands

SAMPLE = {("delta", "renames")}
"""Of the forms and phases; the other forms end in their commits in ``tests/tables/test_objects.py``."""


def to_bucket(text: str, form: str, bucket: str) -> str:
    """The good table and those of routes in a form, the quarantine in Parquet, all in a bucket; the state is here."""
    before, quarantine, after = text.partition("[quarantine]")
    before = before.replace("parquet:./tables", FORMS[form][0] + bucket).replace(
        "[pipeline]", '[pipeline]\nstate = "state"'
    )
    return before + quarantine + after.replace("parquet:./tables", f"parquet:{bucket}")


def read_all(form: str, bucket: str) -> dict[tuple[int, int], list[str]]:
    """Where each message (partition, offset) is: table names, and reasons for those in quarantine."""
    places: dict[tuple[int, int], list[str]] = {}
    for name in ("flights", "late", "quarantine"):
        held = (read_parquet if name == "quarantine" else FORMS[form][1])(f"{bucket}/{name}")
        kinds = held["reason"] if name == "quarantine" else [name] * len(held)
        for partition, offset, kind in zip(held["partition"], held["offset"], kinds, strict=True):
            places.setdefault((partition, offset), []).append(kind)
    return places


@pytest.mark.turns(4)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("phase", PHASES)
def test_a_crash_in_every_phase(
    place: Place, bucket: str, form: str, phase: str, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    if not full and (form, phase) not in SAMPLE:
        pytest.skip("the whole matrix runs with LADING_TEST_FULL=1")
    file = place.write(lambda text: to_bucket(text, form, bucket))
    assert checked(file) == []
    with monkeypatch.context() as patch, pytest.raises(Crash):
        striker = Striker(phase, 2 if phase in ("half", "task") else 1)
        _break_errands(patch, striker)
        Driver(file, striker).run()
    counts = Driver(file).run()
    assert counts["read"] == counts["good"] + counts["routed"] + counts["quarantined"]
    expected = {(partition, row): [fate(row)] for partition in range(PARTITIONS) for row in range(ROWS)}
    assert read_all(form, bucket) == expected
    quarantined: list[Any] = [row["message"] for row in Quarantine(PipelineSettings.load(file)).rows()]
    assert (
        len(set(quarantined))
        == len(quarantined)
        == sum(kind[0] not in ("late", "flights") for kind in expected.values())
    )


def test_the_state_of_a_table_in_a_bucket_is_named(place: Place) -> None:
    file = place.write(lambda text: text.replace("parquet:./tables", "parquet:s3://lake"))
    with pytest.raises(SettingError, match=r"pipeline\.state 's3://lake/flights': the state .* name a directory"):
        Plan.of(PipelineSettings.load(file))
