"""Expectations: what violates them is counted, put into quarantine, or stops the batch; no message is in two places."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from lading.model.errors import LocalError, SettingError
from lading.pipeline.metrics import PipelineMetrics
from lading.pipeline.quarantine import Quarantine
from lading.pipeline.report import report
from lading.pipeline.settings import PipelineSettings
from lading.pipeline.state import existing

from .conftest import PARTITIONS, ROWS, Place
from .direct import Crash, Driver, checked
from .flights import fate, found
from .test_crashes import Striker

EXPECTATIONS = """
[[expect]]
name = "even"
condition = "delay <> 7"
else = "warn"

[[expect]]
name = "short"
condition = "delay < 150 AND carrier <> 'DL'"
else = "quarantine"

[[route]]
name = "nines"
where = "delay = 9"
to = "quarantine"

[[route]]
"""


def _expecting(text: str) -> str:
    return text.replace("\n[[route]]\n", EXPECTATIONS, 1).replace(
        "[headers]", "[quality]\nmax_failure_ratio = 0.7\n\n[headers]"
    )


def _fate(row: int) -> str:
    """What becomes of a message, as ``flights.fate``, by the file's expectations."""
    before, delay = fate(row), row % 200
    if before not in ("flights", "late"):
        return before
    if delay >= 150 or row % 3 == 2:
        return "expectation"
    return "route" if delay == 9 else before


def _assert_places(place: Place) -> Counter[str]:
    expected = {(part, row): [_fate(row)] for part in range(PARTITIONS) for row in range(ROWS)}
    assert found(place.tables) == expected
    return Counter(kinds[0] for kinds in expected.values())


def test_each_expectation_is_counted_where_people_look(place: Place) -> None:
    file = place.write(_expecting)
    driver = Driver(file)
    counts = driver.run()
    where = _assert_places(place)
    sevens = PARTITIONS * sum(row % 200 == 7 for row in range(ROWS) if fate(row) in ("flights", "late"))
    assert (counts["expect.even"], counts["expect.short"]) == (sevens, where["expectation"])
    assert counts["reason.expectation.short"] == where["expectation"]
    assert counts["reason.route.nines"] == where["route"] > 0
    assert counts["read"] == counts["good"] + counts["routed"] + counts["quarantined"] == PARTITIONS * ROWS
    page = report(existing(PipelineSettings.load(file)), "flights")
    words = re.sub(r"(<[^>]*>)+", " ", page)
    assert f" even {sevens} {100 * sevens / counts['read']:.2f} % " in words
    figures = PipelineMetrics("flights")
    for manifest in driver.manifests:
        figures.add(manifest, 1.0)
    samples = [sample for family in figures.collect() for sample in family.samples]
    shown = {
        sample.labels["expectation"]: sample.value
        for sample in samples
        if sample.name == "lading_pipeline_expectation_violations_total"
    }
    assert shown == {"even": sevens, "short": where["expectation"]}


def test_an_expectation_and_a_route_are_sent_again_by_name(place: Place) -> None:
    file = place.write(_expecting)
    Driver(file).run()
    where = _assert_places(place)
    quarantine = Quarantine(PipelineSettings.load(file))
    (row,) = [row for row in quarantine.rows(reasons=["short"], where="offset = 150") if "/0/" in row["message"]]
    assert (row["reason"], row["header"]) == ("expectation", "short")
    assert row["detail"] == "the expectation short does not hold: delay < 150 AND carrier <> 'DL'"
    assert quarantine.redrive(reasons=["nines"], dry_run=True).sent == where["route"]
    assert quarantine.redrive(reasons=["short"]).sent == where["expectation"]
    assert quarantine.redrive(reasons=["expectation"]).sent == 0
    # without the expectation, what was sent again goes to the other destinations
    nines = PARTITIONS * sum(row % 200 == 9 and row % 3 == 2 and _fate(row) == "expectation" for row in range(ROWS))
    counts = Driver(
        place.write(
            lambda text: _expecting(text).replace('"quarantine"\n\n[[route]]\nname', '"warn"\n\n[[route]]\nname')
        )
    ).run()
    assert (counts["read"], counts["quarantined"]) == (where["expectation"], nines)
    with pytest.raises(SettingError, match=r"reason 'shorts' does not exist .did you mean 'short'"):
        list(quarantine.rows(reasons=["shorts"]))


def test_fail_stops_before_anything_is_published(place: Place) -> None:
    def failing(text: str) -> str:
        one = '[[expect]]\nname = "short"\ncondition = "delay < 199"\nelse = "fail"\n\n[good]'
        return text.replace("[good]", one)

    file = place.write(failing)
    for _ in range(2):
        with pytest.raises(
            LocalError, match=r"'short' does not hold for \d+ of 1,500 messages .*delay < 199.*--accept-"
        ):
            Driver(file).run()
    assert not list(place.tables.glob("*/*.parquet"))
    with pytest.raises(LocalError, match="'short' does not hold"):
        Driver(file).run(accept_batch=True)
    assert len(found(place.tables)) == 1500


@pytest.mark.parametrize("phase", ["renames"])
def test_a_crash_leaves_each_message_in_one_place(place: Place, phase: str) -> None:
    file = place.write(_expecting)
    try:
        Driver(file, Striker(phase)).run()
    except Crash:
        Driver(file).run()
    counts: Counter[str] = Counter()
    state = existing(PipelineSettings.load(file))
    for number in state.manifests.numbers():
        counts.update(state.manifests.read(number).counts)
    assert counts["expect.short"] == _assert_places(place)["expectation"]


REFUSED = [
    ('name = "a"\ncondition = "dely < 3"\nelse = "warn"', r"expect\[1\].condition: unknown header 'dely'.*delay"),
    (
        'name = "a"\ncondition = "delay < \'x\'"\nelse = "warn"',
        r"expect\[1\].condition: header 'delay' \(int\) is comp",
    ),
    ('name = "a"\ncondition = "delay <"\nelse = "warn"', r"expect\[1\].condition: syntax error"),
]


@pytest.mark.parametrize(("section", "problem"), REFUSED)
def test_what_cannot_be_typed_is_refused_in_its_place(place: Place, section: str, problem: str) -> None:
    file = place.write(lambda text: text.replace("[good]", f"[[expect]]\n{section}\n\n[good]"))
    (found_,) = checked(file)
    assert found_.part == "settings"
    assert "^" in found_.sentence
    with pytest.raises(SettingError, match=problem):
        Driver(file)


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ('name = "a"\ncondition = "delay < 3"', "expect.*else is missing; it takes"),
        ('name = "a"\ncondition = "delay < 3"\nelse = "drop"', "else cannot be 'drop'"),
        ('name = "bad_value"\ncondition = "delay < 3"\nelse = "warn"', "this word is taken"),
        ('name = "a b"\ncondition = "delay < 3"\nelse = "warn"', "a name begins with a letter"),
        ('name = "a"\ncondition = "delay < 3"\nelse = "warn"\n[[route]]\nname = "a"\nwhere = "delay > 1"\n'
         'to = "quarantine"', "the name 'a' is given twice"),
    ],
)  # fmt: skip
def test_sections_that_make_no_sense(tmp_path: Path, section: str, problem: str) -> None:
    file = tmp_path / "flights.toml"
    good = '[source]\nfrom = "./data"\ntopic = "t"\n[headers]\ndelay = "int"\n[good]\nto = "parquet:./good"\n'
    file.write_text(f"{good}[[expect]]\n{section}\n")
    with pytest.raises(SettingError, match=problem):
        PipelineSettings.load(file)
