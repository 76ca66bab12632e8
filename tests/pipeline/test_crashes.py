"""Exactly once: the driver dies in every phase of a batch, settings and states change before the restart."""

from __future__ import annotations

import pkgutil
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from lading import read_arrow, testing
from lading.model.state import State
from lading.payloads.avro_datum import encode_value
from lading.pipeline import replace as replacement
from lading.pipeline import side_effects
from lading.pipeline.replace import replace_range
from lading.pipeline.settings import PipelineSettings
from lading.registry.client import RegistryAddress, RegistryClient
from lading.schemas.avro import parse_avro
from lading.tables.commit.staging import PartitionFiles, TableFiles
from lading.tables.formats.registry import FORMATS, open_table
from lading.tables.storage.files import write_document
from lading.tables.upkeep.rewrite import StagedRewrite
from tests.tables.direct import DirectExecutor

from .conftest import PARTITIONS, ROWS, Place
from .direct import Crash, Driver
from .flights import (
    BAD_PAYLOAD,
    CUT,
    UNKNOWN,
    assert_every_message_once,
    fate,
    fill,
    found,
    table,
    write_json,
)

PHASES = ("half", "task", "manifest", "renames", "errands", "sent", "noted", "published")
"""While a task writes, as when its worker is killed; after a task's files; after the manifest; between renames; before
copies are sent; after they were sent, before they are noted; after that, before the batch is noted as delivered; before
the checkpoint knows."""


@dataclass
class Striker:
    """Crashes the ``turn``-th time a phase is reached."""

    phase: str
    turn: int = 1

    def __call__(self, phase: str) -> None:
        if phase == self.phase:
            self.turn -= 1
            if self.turn == 0:
                raise Crash(phase)


def _same(text: str) -> str:
    return text


def _tasks_cut_otherwise(text: str) -> str:
    return text.replace("max_rows_per_task = 1_000", "max_rows_per_task = 170")


def _another_contract(text: str) -> str:
    return text.replace('"string required"', '"string"').replace("delay > 60", "delay > 100")


def _with_an_expectation(text: str) -> str:
    return text.replace(
        "[good]", '[[expect]]\nname = "short"\ncondition = "delay < 180"\nelse = "quarantine"\n\n[good]'
    )


def _in_form(text: str, form: str) -> str:
    """The good table and those of routes in a form; the quarantine is always Parquet."""
    before, quarantine, after = text.partition("[quarantine]")
    for members, section in SECTIONS.items():
        if form.endswith(members):
            before = before.replace("[headers]", section + "\n[headers]\n" + MEMBERS)
            before = before.replace('where = "delay > 60"', 'where = "delay > 60 AND payload.row >= 0"')
            form = form.removesuffix(members)
    name, divided, _ = form.partition(BY_CARRIER)
    before = before.replace('to = "parquet:', f'to = "{name}:')
    if divided:
        before = re.sub(r"^(to = .*)$", r'\1\npartition_by = ["carrier"]', before, flags=re.MULTILINE)
    return before + quarantine + after


BY_CARRIER, WITH_MEMBERS, WITH_AVRO = " by carrier", " with members", " with members of Avro"
SECTIONS = {
    WITH_AVRO: '[payload]\nformat = "avro"\nregistry = "REGISTRY"\nregistry_cache = "./schemas"\n',
    WITH_MEMBERS: '[payload]\nformat = "json"\n',
}
MEMBERS = 'row = "int required from payload"\npart = { type = "tinyint", from = "payload.p", min = 0 }\n'
"""Columns of the payloads: their row is their offset."""
PAYLOAD_FAULTS = {WITH_MEMBERS: ("payload_malformed", None), WITH_AVRO: ("payload_malformed", "schema_unknown")}
AVRO = '{"type":"record","name":"Flight","fields":[{"name":"row","type":"int"},{"name":"p","type":"int"}]}'
CHANGES: dict[str, Callable[[str], str]] = {
    "nothing": _same, "tasks": _tasks_cut_otherwise, "contract": _another_contract, "states": _same,
    "expectation": _with_an_expectation,
}  # fmt: skip
FORMS_WITH_MEMBERS = [f"{form}{members}" for form in ("delta", "iceberg") for members in (WITH_MEMBERS, WITH_AVRO)]
MATRIX = [(phase, change) for phase in PHASES for change in CHANGES]
SAMPLE = {*((phase, "nothing") for phase in PHASES), *random.Random(17).sample(MATRIX, 6)}
SAMPLE_OF_FORM = {
    "iceberg": {(phase, "nothing") for phase in ("renames", "errands", "published")},
    "parquet by carrier": {("half", "nothing"), ("renames", "tasks")},
    "delta by carrier": {("errands", "nothing")}, "iceberg by carrier": set[tuple[str, str]](),
    "delta with members": {("half", "tasks"), ("renames", "nothing")},
    "iceberg with members": set[tuple[str, str]](), "iceberg with members of Avro": {("manifest", "nothing")},
    "delta with members of Avro": {("half", "nothing"), ("published", "tasks"), ("renames", "contract")},
}  # fmt: skip
"""What reads and commits a table slowly: where its commit is among the steps that are done again; and partitions."""
HIDDEN = range(1000, 1010)
"""Rows whose state changes between crash and restart: they are in the last batch of every partition."""


@pytest.mark.parametrize("form", [*FORMATS, *(f"{form}{BY_CARRIER}" for form in FORMATS), *FORMS_WITH_MEMBERS])
@pytest.mark.parametrize(("phase", "change"), MATRIX)
@pytest.mark.turns(4)
def test_a_crash_in_every_phase(
    place: Place, served: testing.BrokerProcess, phase: str, change: str, form: str,
    monkeypatch: pytest.MonkeyPatch, full: bool,
) -> None:  # fmt: skip
    if not full and (phase, change) not in SAMPLE_OF_FORM.get(form, SAMPLE):
        pytest.skip("the whole matrix runs with LADING_TEST_FULL=1")
    members = next((one for one in SECTIONS if form.endswith(one)), "")
    registry = f"http://{served.endpoints['schema_registry']}"
    faults = PAYLOAD_FAULTS.get(members, (None, None))
    if members:
        place = _with_payload_faults(place, registry, members)

    def write(text: str) -> str:
        return _in_form(text, form).replace("REGISTRY", registry)

    striker = Striker(phase, 2 if phase in ("half", "task") else 1)
    _break_errands(monkeypatch, striker)
    with pytest.raises(Crash):
        Driver(place.write(write), striker).run()
    monkeypatch.undo()
    if change == "states":
        place.transport.set_state(place.topic, 0, HIDDEN.start, HIDDEN.stop, State.POISONED)
    counts = Driver(place.write(lambda text: CHANGES[change](write(text)))).run()
    flights = open_table(place.tables / "flights")
    assert (flights.form, flights.partitions.words) == (
        form.partition(" ")[0], ["carrier"] if form.endswith(BY_CARRIER) else [],
    )  # fmt: skip
    assert counts["read"] == counts["good"] + counts["routed"] + counts["quarantined"]
    if change in ("nothing", "tasks"):
        _assert_copies_once(place, assert_every_message_once(place.tables, PARTITIONS, ROWS, faults), faults)
    if members:
        for name in ("flights", "late"):
            columns = table(place.tables / name).select(["offset", "row", "partition", "part"]).to_pydict()
            assert columns["row"] and (columns["row"], columns["part"]) == (columns["offset"], columns["partition"])
    kinds = found(place.tables)
    hidden = {(0, row) for row in HIDDEN} if change == "states" else set()
    expected = {(partition, row) for partition in range(PARTITIONS) for row in range(ROWS)} - hidden
    lost, twice = expected - set(kinds), [where for where, held in kinds.items() if len(held) > 1]
    assert (lost, twice, set(kinds) - expected) == (set(), [], set())
    assert not list(place.tables.glob("*/_lading/staged/*"))
    print(f"{form}: crashed in {phase}, {change} changed: lost {len(lost)}, twice {len(twice)} of {len(expected):,}")


def test_a_contract_changed_between_crash_and_restart(place: Place) -> None:
    """The batch with a manifest is what it was; the others are judged by the new contract; each message is once."""
    with pytest.raises(Crash):
        Driver(place.write(), Striker("renames")).run()
    driver = Driver(place.write(lambda text: text.replace('"string required"', '"string"')))
    driver.run()
    kinds = found(place.tables)
    assert len(kinds) == PARTITIONS * ROWS
    missing = [where for where, kind in kinds.items() if fate(where[1]) == "missing_header"]
    before = [where for where in missing if kinds[where] == ["missing_header"]]
    after = [where for where in missing if kinds[where] != ["missing_header"]]
    assert before and after
    assert max(row for _, row in before) < min(row for _, row in after)
    assert all(len(kind) == 1 for kind in kinds.values())


def test_states_changed_between_crash_and_restart(place: Place) -> None:
    """What was hidden before its batch had a manifest is not read; what had one stays."""
    with pytest.raises(Crash):
        Driver(place.write(), Striker("task", 2)).run()
    place.transport.set_state(place.topic, 0, 10, 20, State.POISONED)
    Driver(place.write()).run()
    kinds = found(place.tables)
    assert {(0, row) for row in range(ROWS)} - set(kinds) == {(0, row) for row in range(10, 20)}
    assert all(len(kind) == 1 for kind in kinds.values())


def _break_errands(monkeypatch: pytest.MonkeyPatch, striker: Striker) -> None:
    send, note, write = side_effects.send_copies, write_document, PartitionFiles.write_group

    def send_and_strike(*arguments: Any) -> int:
        count = send(*arguments)
        striker("sent")
        return count

    def strike_and_note(*arguments: Any) -> None:
        striker("noted")
        note(*arguments)

    monkeypatch.setattr(side_effects, "send_copies", send_and_strike)

    def write_and_strike(self: PartitionFiles) -> None:
        write(self)
        striker("half")

    monkeypatch.setattr(side_effects, "write_document", strike_and_note)
    monkeypatch.setattr(PartitionFiles, "write_group", write_and_strike)
    # whoever is killed tidies nothing up
    monkeypatch.setattr(TableFiles, "discard", lambda self: None)


def _with_payload_faults(place: Place, registry: str, members: str) -> Place:
    """A topic whose payloads are cut in some rows, or name a schema that does not exist."""
    schema_id = RegistryClient(RegistryAddress(registry)).register("flights-value", "AVRO", AVRO)

    def write(row: int, partition: int) -> bytes:
        if members == WITH_MEMBERS:
            payload = write_json(row, partition)
        else:
            number = 9_999_999 if row % BAD_PAYLOAD == UNKNOWN else schema_id
            payload = (
                b"\0" + number.to_bytes(4, "big") + encode_value(parse_avro(AVRO).root, {"row": row, "p": partition})
            )
        return payload[:-1] if row % BAD_PAYLOAD == CUT else payload

    topic = f"{place.topic}.payloads"
    fill(place.transport, topic, PARTITIONS, ROWS, write)
    return replace(place, topic=topic)


def _assert_copies_once(place: Place, counts: dict[str, int], faults: tuple[str | None, str | None]) -> None:
    copies = read_arrow(
        place.url, place.copies, "reason string from lading-reason, origin string from lading-origin",
        verify_checksum=False,
    )  # fmt: skip
    origins: list[Any] = copies["origin"].to_pylist()
    assert len(origins) == len(set(origins))
    expected = {
        f"{place.topic}/{partition}/{row}": fate(row, faults)
        for partition in range(PARTITIONS)
        for row in range(ROWS)
        if fate(row, faults) not in ("late", "flights")
    }
    assert dict(zip(origins, copies["reason"].to_pylist(), strict=True)) == expected
    assert sum(count for kind, count in counts.items() if kind not in ("late", "flights")) == len(expected)


REPLACED = range(300, 900)
"""Offsets of every partition that are replaced: parts of files, and whole ones."""
STEPS: dict[str, tuple[str, ...]] = {
    "staged": ("lading.tables.commit.staging.PartitionFiles.write_group",),
    "confirmed": ("lading.pipeline.replace.replace_ranges",),
    "manifest": ("lading.tables.formats.manifest.Manifests.write",),
    "rewritten": ("lading.tables.upkeep.rewrite.StagedRewrite.write",),
    "table": ("lading.tables.upkeep.rewrite.StagedRewrite.replace",),
    "written down": ("lading.tables.formats.directory.create_document", "lading.tables.formats.logged.move_file"),
    "moved": ("lading.tables.formats.directory.move_file", "lading.tables.formats.logged.move_file"),
    "published": ("lading.tables.commit.state.PipelineStateDirectory.note_published",),
    "delivered": ("lading.pipeline.side_effects.write_document",),
}
"""Where a replacement may end, each before and after the call, and in the second such call."""
REPLACE_MATRIX = [(step, when) for step in STEPS for when in ("before", "after", "second")]
REPLACE_SAMPLE = {
    "parquet": {*REPLACE_MATRIX[::2]}, "delta": {("table", "after"), ("moved", "second"), ("published", "before")},
    "iceberg": {("rewritten", "second"), ("table", "second"), ("written down", "after")},
    "iceberg by carrier": {("table", "before")}, "delta by carrier": {("manifest", "after")},
    "parquet by carrier": {("moved", "second")},
}  # fmt: skip


@pytest.mark.parametrize("form", [*FORMATS, *(f"{form}{BY_CARRIER}" for form in FORMATS)])
@pytest.mark.parametrize(("step", "when"), REPLACE_MATRIX)
@pytest.mark.turns(3)
def test_a_crash_at_every_step_of_a_replacement(
    place: Place, step: str, when: str, form: str, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    if not full and (step, when) not in REPLACE_SAMPLE[form]:
        pytest.skip("the whole matrix runs with LADING_TEST_FULL=1")
    Driver(place.write(lambda text: _in_form(text, form).replace("[headers]", "ending = 1000\n\n[headers]"))).run()
    file = place.write(lambda text: _another_contract(_in_form(text, form)))
    settings = PipelineSettings.load(file)
    with monkeypatch.context() as patch:
        _end_in(patch, STEPS[step], when)
        patch.setattr(StagedRewrite, "__exit__", lambda *_: None)
        patch.setattr(replacement, "_delete_leftovers", lambda *_: None)
        try:
            replace_range(settings, DirectExecutor(), str(REPLACED.start), str(REPLACED.stop))
        except Crash:
            crashed = True
        else:
            # a form that does not come to this step, or only once
            crashed = False
    # incremental runs go on, and complete what was written down
    Driver(file).run()
    kinds = found(place.tables)
    expected = {(partition, row) for partition in range(PARTITIONS) for row in range(ROWS)}
    lost, twice = expected - set(kinds), [where for where, held in kinds.items() if len(held) > 1]
    assert (lost, twice, set(kinds) - expected) == (set(), [], set())
    changed = {row for (_, row), held in kinds.items() if row < 1000 and held != [fate(row)]}
    contract = {row for row in range(1000) if _fate_by_another_contract(row) != fate(row)}
    assert changed in (set(), contract & set(REPLACED)), "all of the range, or nothing"
    if step not in ("staged", "confirmed", "manifest"):
        assert changed
    replace_range(settings, DirectExecutor(), "0", "now")
    kinds = found(place.tables)
    assert kinds == {(partition, row): [_fate_by_another_contract(row)] for partition, row in expected}
    print(
        f"{form}: replacement {'ended' if crashed else 'did not end'} {when} {step}: lost {len(lost)}, "
        f"twice {len(twice)} of {len(expected):,}; {'new' if changed else 'old'} rows"
    )


def _fate_by_another_contract(row: int) -> str:
    kind = fate(row)
    if kind == "missing_header":
        # the carrier is not required any more: the next check decides
        kind = "bad_value" if row % 70 == 2 else "checksum_mismatch" if row % 90 == 3 else "flights"
    return ("late" if row % 200 > 100 else "flights") if kind in ("late", "flights") else kind


def _end_in(patch: pytest.MonkeyPatch, names: tuple[str, ...], when: str) -> None:
    turns = iter(range(10_000))
    for name in names:
        real = pkgutil.resolve_name(name)

        def strike(*given: Any, real: Any = real, **more: Any) -> Any:
            turn = next(turns)
            if (when, turn) in (("before", 0), ("second", 1)):
                raise Crash(when)
            made = real(*given, **more)
            if (when, turn) == ("after", 0):
                raise Crash(when)
            return made

        patch.setattr(name, strike)
