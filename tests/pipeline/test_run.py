"""Runs without Spark around them: breaker, states, schemas, lost checkpoints, other people's tables."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow.parquet as pq
import pytest

from lading import Producer, read_arrow
from lading.model.errors import CorruptLog, DataLoss, LocalError
from lading.pipeline.report import report
from lading.pipeline.settings import PipelineSettings
from lading.pipeline.state import existing
from lading.testing import BrokerProcess

from .conftest import PARTITIONS, ROWS, Place
from .direct import Driver, checked
from .flights import assert_every_message_once, fate, found, messages, table


def test_every_message_is_in_one_place_and_the_run_goes_on(place: Place) -> None:
    counts = Driver(place.write()).run()
    where = assert_every_message_once(place.tables, PARTITIONS, ROWS)
    assert (counts["good"], counts["routed"]) == (where["flights"], where["late"])
    assert counts["read"] == counts["good"] + counts["routed"] + counts["quarantined"] == PARTITIONS * ROWS
    assert {name: count for name, count in counts.items() if name.startswith("reason.")} == {
        "reason.missing_header.carrier": where["missing_header"],
        "reason.bad_value.delay": where["bad_value"],
        "reason.checksum_mismatch": where["checksum_mismatch"],
    }
    assert sum(count for name, count in counts.items() if name.startswith("delay.")) == PARTITIONS * ROWS
    assert Driver(place.write()).run() == {}
    place.transport.send(place.topic, 0, messages(0, ROWS + 100).slice(ROWS))
    assert Driver(place.write()).run()["read"] == 100
    rows = [row for partition, row in found(place.tables) if partition == 0]
    assert sorted(rows) == list(range(ROWS + 100))


def test_quarantine_holds_the_original_bytes(place: Place) -> None:
    Driver(place.write()).run()
    held: Any = table(place.tables / "quarantine").sort_by([("partition", "ascending"), ("offset", "ascending")])
    source: Any = read_arrow(place.url, place.topic, verify_checksum=False)
    kept = [at for at in range(ROWS) if fate(at) not in ("flights", "late")]
    original = source.take([partition * ROWS + at for partition in range(PARTITIONS) for at in kept])
    for name in ("offset", "timestamp", "checksum", "payload", "key"):
        assert held[name].to_pylist() == original[name].to_pylist()
    assert held["headers"].to_pylist() == original["headers"].to_pylist()
    assert held["reason"].to_pylist() == [fate(at) for _ in range(PARTITIONS) for at in kept]
    # the copies have the same headers, and then the reason
    copies: Any = read_arrow(place.url, place.copies, verify_checksum=False)
    wanted = dict(zip(zip(held["partition"].to_pylist(), held["payload"].to_pylist(), strict=True),
                      held["headers"].to_pylist(), strict=True))  # fmt: skip
    assert len(copies) == len(wanted)
    for headers in copies["headers"].to_pylist():
        assert next(header["key"] for header in headers if header["key"].startswith("lading-")) == "lading-reason"
    own = [
        [header for header in row if not header["key"].startswith("lading-")] for row in copies["headers"].to_pylist()
    ]
    assert sorted(map(str, own)) == sorted(map(str, held["headers"].to_pylist()))


def test_the_breaker_stops_before_anything_is_published(place: Place) -> None:
    def impossible(text: str) -> str:
        return text.replace("[headers]", '[headers]\nnowhere = "string required"')

    file = place.write(impossible)
    with pytest.raises(LocalError, match=r"stopped before publishing: 1,\d+ of 1,\d+ .*100%.*missing_header nowhere"):
        Driver(file).run()
    assert not list(place.tables.glob("*/*.parquet"))
    # the next run tries the same batch; mended, everything is published
    with pytest.raises(LocalError, match="--accept-batch"):
        Driver(file).run()
    Driver(place.write()).run()
    assert_every_message_once(place.tables, PARTITIONS, ROWS)


@pytest.mark.parametrize(
    ("sent", "bad", "quality"), [(8, 2, ""), (99, 99, ""), (100, 20, ""), (100, 21, None), (4, 1, 1)]
)
def test_a_ratio_counts_from_some_number_of_messages_on(
    served: BrokerProcess, tmp_path: Path, sent: int, bad: int, quality: str | int | None
) -> None:
    topic = f"small-{sent}-{bad}"
    with Producer(served.url) as producer:
        for number in range(sent):
            producer.send(topic, b"x", headers={} if number < bad else {"carrier": "UA"})
    file = tmp_path / "small.toml"
    minimum = f"[quality]\nmin_messages = {quality}\n" if isinstance(quality, int) else ""
    file.write_text(
        f'{minimum}[source]\nfrom = "{served.url}"\ntopic = "{topic}"\n[headers]\ncarrier = "string required"\n'
        '[good]\nto = "parquet:./good"\n'
    )
    if quality == "":
        counts = Driver(file).run()
        assert (counts.get("good", 0), counts["quarantined"]) == (sent - bad, bad)
    else:
        with pytest.raises(LocalError, match=rf"0\.2, in batches of min_messages = {quality or 100} or more"):
            Driver(file).run()


def test_a_renamed_file_is_told_of_its_id(place: Place) -> None:
    Driver(place.write()).run()
    other = place.write(lambda text: text.replace('id = "flights"', 'id = "other"'))
    with pytest.raises(LocalError, match=r'belongs to pipeline .flights., not to .other.; write id = "flights" in its'):
        Driver(other).run()


def test_one_refused_batch_can_be_accepted_and_no_other(place: Place) -> None:
    def strict(text: str) -> str:
        return text.replace("[headers]", "[quality]\nmax_failure_ratio = 0.01\n\n[headers]")

    file = place.write(strict)
    with pytest.raises(LocalError, match="no rejected batch to accept"):
        Driver(file).run(accept_batch=True)
    with pytest.raises(LocalError, match="stopped before publishing"):
        Driver(file).run()
    with pytest.raises(LocalError, match="stopped before publishing"):
        Driver(file).run(accept_batch=True)
    assert len(found(place.tables)) == 1500
    Driver(file).run(accept_batch=True)
    assert_every_message_once(place.tables, PARTITIONS, ROWS)


def test_a_route_sets_states_once_its_batch_is_published(place: Place) -> None:
    def poison(text: str) -> str:
        route = '[[route]]\nwhere = "delay = 7 OR offset BETWEEN 300 AND 399"\nset_state = "poisoned"\n\n[[route]]'
        return text.replace("[[route]]", route, 1)

    Driver(place.write(poison)).run()
    taken = [row for row in range(ROWS) if row % 200 == 7 or 300 <= row < 400]
    hit = [row for row in taken if fate(row) in ("flights", "late")]
    assert hit
    for partition in range(PARTITIONS):
        states = place.transport.states(place.topic, partition)
        assert [row for first, end, _ in states for row in range(first, end)] == hit
        assert {state.word for _, _, state in states} == {"poisoned"}
    assert {(partition, row) for partition in range(PARTITIONS) for row in range(ROWS)} - set(found(place.tables)) == {
        (partition, row) for partition in range(PARTITIONS) for row in hit
    }


def test_columns_may_be_added_and_not_changed(place: Place) -> None:
    Driver(place.write()).run()
    place.transport.send(place.topic, 0, messages(0, 20))
    with pytest.raises(LocalError, match="'delay' as int32, and now it would be int64"):
        Driver(place.write(lambda text: text.replace('"int"', '"bigint"'))).run()
    without = place.write(lambda text: text.replace('carrier = "string required"\n', ""))
    with pytest.raises(LocalError, match="has the column 'carrier'"):
        Driver(without).run()
    assert [(problem.part, "'carrier'" in problem.sentence) for problem in checked(without)] == [
        ("table", True), ("table", True),
    ]  # fmt: skip
    Driver(place.write(lambda text: text.replace("[headers]", '[headers]\ntail = "string"'))).run()
    newest = max((place.tables / "flights").glob("*.parquet"))
    assert "tail" in pq.read_schema(newest).names


def test_a_lost_checkpoint(place: Place) -> None:
    Driver(place.write()).run()
    rmtree(place.tables / "flights" / "_lading" / "checkpoint")
    with pytest.raises(LocalError, match=r"checkpoint is missing .*--resume"):
        Driver(place.write()).run()
    place.transport.send(place.topic, 1, messages(1, ROWS + 10).slice(ROWS))
    assert Driver(place.write()).run(resume=True)["read"] == 10
    assert len(found(place.tables)) == PARTITIONS * ROWS + 10


def test_lost_manifests(place: Place) -> None:
    Driver(place.write()).run()
    for path in (place.tables / "flights" / "_lading" / "manifests").iterdir():
        path.unlink()
    with pytest.raises(LocalError, match=r"holds manifest 2 .*is 0.*continue where it ends: .* --resume"):
        Driver(place.write()).run()
    for copy in place.tables.glob("*/_lading/last-manifest.json"):
        copy.unlink()
    with pytest.raises(CorruptLog, match=r"published manifest 2, but the last one in .* is 0.*restore them"):
        Driver(place.write()).run(resume=True)
    assert len(found(place.tables)) == PARTITIONS * ROWS


@pytest.mark.parametrize("what", ["own directory", "in the table"])
def test_a_lost_state(place: Place, what: str, caplog: pytest.LogCaptureFixture) -> None:
    """Refused with the command that goes on where the tables end; nothing is lost, and nothing twice."""

    def change(text: str) -> str:
        return text.replace("[pipeline]", '[pipeline]\nstate = "./state"') if what == "own directory" else text

    state = place.base / "state" if what == "own directory" else place.tables / "flights" / "_lading"
    Driver(place.write(change)).run()
    rmtree(state)
    place.transport.send(place.topic, 1, messages(1, ROWS + 10).slice(ROWS))
    with pytest.raises(LocalError, match=r"there is no state in .*continue where the table ends: .*--resume"):
        Driver(place.write(change)).run()
    assert Driver(place.write(change)).run(resume=True)["read"] == 10
    assert "is taken over from" in caplog.text
    assert Driver(place.write(change)).run() == {}
    places = found(place.tables)
    lost = PARTITIONS * ROWS + 10 - len(places)
    doubled = sum(len(kinds) > 1 for kinds in places.values())
    print(f"state lost, {what}: lost {lost}, doubled {doubled} of {PARTITIONS * ROWS + 10:,}")
    assert (lost, doubled) == (0, 0)


def test_a_state_of_before_is_refused_with_the_command(place: Place) -> None:
    state = place.base / "state"

    def change(text: str) -> str:
        return text.replace("[pipeline]", '[pipeline]\nstate = "./state"')

    Driver(place.write(change, max_rows=900)).run()
    newest = max((state / "_lading" / "manifests").iterdir())
    newest.unlink()
    (state / "_lading" / "published.json").write_text('{"number": 2}')
    with pytest.raises(LocalError, match=r"holds manifest 3 .*restore them, or, if no other run .*--resume"):
        Driver(place.write(change)).run()
    assert Driver(place.write(change)).run(resume=True) == {}
    assert_every_message_once(place.tables, PARTITIONS, ROWS)


def test_resumed_partitions_without_messages_begin_where_they_began(place: Place) -> None:
    latest = place.write(lambda text: text.replace("[headers]", 'starting = "latest"\n\n[headers]'))
    assert Driver(latest).run() == {}
    place.transport.send(place.topic, 1, messages(1, ROWS + 10).slice(ROWS))
    assert Driver(latest).run()["read"] == 10
    rmtree(place.tables / "flights" / "_lading" / "checkpoint")
    # partition 0 is in no manifest
    assert Driver(latest).run(resume=True) == {}
    place.transport.send(place.topic, 0, messages(0, ROWS + 5).slice(ROWS))
    assert Driver(latest).run()["read"] == 5


def test_tables_and_states_of_others(place: Place) -> None:
    late = place.tables / "late"
    late.mkdir(parents=True)
    (late / "theirs.parquet").write_bytes(b"x")
    file = place.write()
    (problem,) = checked(file)
    assert "'theirs.parquet', which Lading did not write" in problem.sentence
    with pytest.raises(LocalError, match="which Lading did not write"):
        Driver(file).run()
    (late / "theirs.parquet").unlink()
    Driver(file).run()
    assert checked(file) == []
    (problem,) = checked(place.write(lambda text: text.replace("parquet:./tables/late", "delta:./tables/late")))
    assert "is of the form parquet, not delta" in problem.sentence
    other = place.write(lambda text: text.replace('id = "flights"', 'id = "other"\nstate = "./elsewhere"'))
    assert "is written by pipeline 'flights-" in checked(other)[0].sentence
    with pytest.raises(LocalError, match="is written by pipeline 'flights-"):
        Driver(other).run()


def test_a_topic_made_anew_is_a_loss(place: Place) -> None:
    Driver(place.write()).run()
    place.transport.delete_topic(place.topic)
    place.transport.create_topic(place.topic, PARTITIONS)
    with pytest.raises(DataLoss, match="deleted and created again"):
        Driver(place.write()).run()


def test_check_names_what_cannot_be_reached(place: Place, tmp_path: Path) -> None:
    missing = place.write(lambda text: text.replace(f'topic = "{place.topic}"', 'topic = "air.flihts"'))
    (problem,) = checked(missing)
    assert problem.part == "source" and "topic 'air.flihts' does not exist" in problem.sentence
    nobody = place.write(lambda text: text.replace(place.url, str(tmp_path / "nothing")))
    assert {problem.part for problem in checked(nobody)} >= {"source"}


def test_the_report_stands_alone(place: Place) -> None:
    file = place.write()
    Driver(file).run()
    settings = PipelineSettings.load(file)
    page = report(existing(settings), settings.id)
    assert page.count("<svg") >= 4
    assert "good + routed + quarantined = read: " in page
    for head in ("Messages by batch", "Rate of a task", "Rate from batch to batch", "Delay from event to table"):
        assert f"<h2>{head}</h2>" in page
    for name in ("flights", "late", "quarantine"):
        assert f"<td>{place.tables / name}</td>" in page
    assert f"{PARTITIONS * ROWS:,}" in page
    assert "missing_header carrier" in page
    for outside in ("http://", "https://", "src=", "@import", "url("):
        assert outside not in page
