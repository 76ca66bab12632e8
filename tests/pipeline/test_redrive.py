"""Redrive: capped, parked, resumable, each message once, headers as they were but for one counter."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lading import Producer, read_arrow
from lading.model.errors import FilterError, LocalError, SettingError
from lading.pipeline import ledger as ledger_module
from lading.pipeline import quarantine as quarantine_module
from lading.pipeline.quarantine import Quarantine
from lading.pipeline.run import run
from lading.pipeline.settings import PipelineSettings
from lading.pipeline.side_effects import send_copies
from lading.tables.local import LocalExecutor

from .conftest import PARTITIONS, ROWS, Place
from .direct import Crash, Driver, no_session
from .flights import fate

FAILED = PARTITIONS * sum(fate(row) not in ("late", "flights") for row in range(ROWS))


def _quarantine(file: Path) -> Quarantine:
    return Quarantine(PipelineSettings.load(file))


def _ends(place: Place) -> int:
    return sum(part.end_offset for part in place.transport.topic(place.topic).partitions)


def test_list_show_and_histogram(place: Place) -> None:
    file = place.write()
    with pytest.raises(LocalError, match="has not run yet"):
        _quarantine(file)
    Driver(file).run()
    quarantine = _quarantine(file)
    assert len(list(quarantine.rows())) == FAILED
    rows = list(quarantine.rows(where="carrier = 'UA'", reasons=["bad_value"]))
    expected = {
        f"{place.topic}/{partition}/{row}"
        for partition in range(PARTITIONS)
        for row in range(ROWS)
        if row % 3 == 0 and fate(row) == "bad_value"
    }
    assert {row["message"] for row in rows} == expected
    assert {(row["reason"], row["header"], row["status"]) for row in rows} == {("bad_value", "delay", "waiting")}
    (whole,) = quarantine.find(f"{place.topic}/1/2")
    assert (whole["payload"], whole["reason"]) == (b'{"row": 2, "p": 1}', "bad_value")
    assert [(header["key"], header["value"]) for header in whole["headers"]] == [
        ("carrier", b"DL"), ("delay", b"late!"),
    ]  # fmt: skip
    counts = {(row["reason"], row["header"]): row["messages"] for row in quarantine.histogram()}
    assert sum(counts.values()) == FAILED
    assert counts["missing_header", "carrier"] == PARTITIONS * sum(fate(row) == "missing_header" for row in range(ROWS))
    with pytest.raises(SettingError, match=r"reason 'bad_valu' does not exist .did you mean 'bad_value'"):
        list(quarantine.rows(reasons=["bad_valu"]))
    with pytest.raises(FilterError, match=r"unknown header 'carier' .did you mean 'carrier'"):
        list(quarantine.rows(where="carier = 'UA'"))
    with pytest.raises(LocalError, match=r"message .* is not in"):
        quarantine.find(f"{place.topic}/0/0")


def test_files_of_other_programs_in_the_table(place: Place) -> None:
    """Columns may be in another order, and of other types that hold the same; a file that lacks one is refused."""
    file = place.write()
    Driver(file).run()
    table = place.tables / "quarantine"
    first = min(table.glob("*.parquet"))
    before = list(_quarantine(file).rows())
    held = pq.read_table(first)
    wide = [pa.field(one.name, pa.int64() if one.name == "partition" else one.type) for one in held.schema]
    turned = held.cast(pa.schema(wide)).select(held.column_names[::-1])
    pq.write_table(turned, first, use_compliant_nested_type=False, use_deprecated_int96_timestamps=True)
    assert list(_quarantine(file).rows()) == before
    # whichever file it is, the first or the last
    for name in ("0", "z"):
        stranger = table / f"{name}.parquet"
        pq.write_table(held.drop_columns(["detail"]), stranger)
        with pytest.raises(LocalError, match=f"{table}: {stranger.name} has no column 'detail'"):
            list(_quarantine(file).rows())
        stranger.unlink()


def test_what_always_fails_is_parked_and_its_headers_do_not_grow(place: Place) -> None:
    """Test 18 of the fault list: the loop stops at the cap."""
    file = place.write()
    Driver(file).run()
    sent = []
    for _ in range(5):
        done = _quarantine(file).redrive(max_replays=3)
        sent.append(done.sent)
        if done.sent:
            counts = Driver(place.write(lambda text: text.replace("[headers]", _NO_BREAKER))).run()
            assert (counts["read"], counts["quarantined"]) == (done.sent, done.sent)
    assert sent == [FAILED, FAILED, FAILED, 0, 0]
    statuses = [(row["status"], row["replays"]) for row in _quarantine(file).rows()]
    assert sorted(set(statuses)) == [("parked", 3), ("replayed", 0), ("replayed", 1), ("replayed", 2)]
    assert statuses.count(("parked", 3)) == FAILED
    last = list(_quarantine(file).batches(where="offset >= 1200"))
    table: Any = pa.Table.from_batches(last)
    parked = [row for row in table.to_pylist() if row["replays"] == 3]
    assert parked
    for row in parked:
        keys = [header["key"] for header in row["headers"]]
        assert keys.count("lading-replays") == 1
        assert set(keys) <= {"carrier", "delay", "lading-replays"}
    # a higher cap lets them go again
    assert _quarantine(file).redrive(max_replays=4, limit=10).sent == 10


_NO_BREAKER = "[quality]\nmax_failure_ratio = 1.0\n\n[headers]"


def test_dry_run_where_and_limit(place: Place) -> None:
    file = place.write()
    Driver(file).run()
    before = _ends(place)
    dry = _quarantine(file).redrive(reasons=["missing_header"], dry_run=True)
    assert (dry.sent, dry.parked, dry.dry_run) == (FAILED_MISSING, 0, True)
    assert _ends(place) == before
    assert _quarantine(file).redrive(reasons=["missing_header"], limit=7).sent == 7
    done = _quarantine(file).redrive(reasons=["missing_header"])
    assert (done.sent, done.already) == (FAILED_MISSING - 7, 7)
    assert _ends(place) == before + FAILED_MISSING
    # as they were, in the partition they came from, with the counter
    again = read_arrow(
        place.url, place.topic, "partition, payload, carrier string, replays int from lading-replays",
        where="header('lading-replays') = 1", verify_checksum=False,
    )  # fmt: skip
    assert again["replays"].to_pylist() == [1] * FAILED_MISSING
    assert again["carrier"].null_count == FAILED_MISSING
    payloads = {
        (partition, b'{"row": %d, "p": %d}' % (row, partition))
        for partition in range(PARTITIONS)
        for row in range(ROWS)
        if fate(row) == "missing_header"
    }
    assert set(zip(again["partition"].to_pylist(), again["payload"].to_pylist(), strict=True)) == payloads


FAILED_MISSING = PARTITIONS * sum(fate(row) == "missing_header" for row in range(ROWS))


def test_a_topic_that_is_not_there_leaves_nothing_behind(place: Place) -> None:
    """A redrive to a mistyped topic sends nothing, and the next one is free to go elsewhere."""
    file = place.write()
    Driver(file).run()
    with pytest.raises(LocalError, match="topic 'typo' does not exist"):
        _quarantine(file).redrive(to="typo")
    assert {row["status"] for row in _quarantine(file).rows()} == {"waiting"}
    # one that was written down before, to a topic that has gone since
    ledger = _quarantine(file).ledger
    (batch, *_) = _quarantine(file).batches()
    ledger.begin(place.url, "gone", quarantine_module.identities(batch)[:5])
    done = _quarantine(file).redrive()
    assert (done.sent, done.resumed, done.already) == (FAILED, 0, 0)


@pytest.mark.parametrize("arrived", [False, True])
def test_an_interrupted_redrive_sends_nothing_twice(
    place: Place, arrived: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = place.write()
    Driver(file).run()
    before = _ends(place)
    real = send_copies

    def crash(*arguments: Any) -> int:
        if arrived:
            real(*arguments)
        raise Crash

    monkeypatch.setattr(ledger_module, "send_copies", crash)
    with pytest.raises(Crash):
        _quarantine(file).redrive(limit=40)
    monkeypatch.undo()
    done = _quarantine(file).redrive()
    assert 0 < done.resumed == done.already
    assert done.resumed + done.sent == FAILED
    # aborted attempts of a transaction take offsets and are never read
    again = read_arrow(place.url, place.topic, "offset", where="header('lading-replays') = 1", verify_checksum=False)
    assert again.num_rows == FAILED
    assert _ends(place) >= before + FAILED
    print(f"redrive interrupted ({'after' if arrived else 'before'} it arrived): lost 0, twice 0 of {FAILED}")


SEVERAL = """
[pipeline]
id = "several"
[[source]]
from = "{url}"
topic = "{first}"
[[source]]
from = "{url}"
topic = "{second}"
[headers]
carrier = "string required"
[quality]
max_failure_ratio = 1.0
[good]
to = "parquet:./good"
[quarantine]
to = "parquet:./bad"
"""


@pytest.mark.parametrize("gone", ["topic", "source"])
def test_a_source_that_is_gone_holds_up_no_other(place: Place, tmp_path: Path, gone: str) -> None:
    """Its topic was deleted, or the file names it no more; it is the first of the two."""
    first, second = f"{place.topic}-gone", f"{place.topic}-kept"
    with Producer(place.url) as producer:
        for topic in (first, second):
            producer.send(topic, b"without headers")
    file = tmp_path / "several.toml"
    text = SEVERAL.format(url=place.url, first=first, second=second)
    file.write_text(text)
    settings = PipelineSettings.load(file)
    with closing(LocalExecutor()) as executor:
        assert run(no_session, settings, executor=executor)["quarantined"] == 2
    if gone == "topic":
        place.transport.delete_topic(first)
    else:
        file.write_text(text.replace(f'"{first}"', f'"{place.topic}"'))
    done = _quarantine(file).redrive()
    assert (done.sent, done.refused, len(done.problems)) == (1, 1, 1)
    assert first in done.problems[0]
    assert read_arrow(place.url, second).num_rows == 2
    # it waits
    assert _quarantine(file).redrive(to=second).sent == 1
