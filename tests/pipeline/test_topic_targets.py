"""Topics as targets, of routes, good and quarantine: what arrives, what is refused, what crashes cost."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lading import read_arrow
from lading.client import delivery
from lading.client.outgoing import complete
from lading.model.errors import LocalError, SettingError
from lading.pipeline import side_effects
from lading.pipeline.quarantine import Quarantine
from lading.pipeline.sending_record import SendingRecord
from lading.pipeline.settings import PipelineSettings

from .conftest import PARTITIONS, ROWS, Place
from .direct import Crash, Driver, checked
from .flights import TOML, fate, messages

FACES = {"lading": "admin", "kafka": "kafka", "iggy": "iggy_tcp", "nsq": "nsqd_tcp"}
EXACT = ("lading", "kafka", "iggy")
"""Where a batch is there once, whatever crashed; at Iggy, as nobody else writes to the topic."""
COMPARED = ["key", "headers", "payload"]


@pytest.fixture
def urls(served: Any) -> dict[str, str]:
    """The broker by every protocol."""
    return {name: f"{name}://{served.endpoints[face]}" for name, face in FACES.items()}


def _write(place: Place, to: str, more: str = "", good: str | None = None) -> Path:
    text = TOML.format(source=place.url, topic=place.topic, server=place.url, max_rows=1500)
    text = text.replace("parquet:./tables/late", to)
    if good is not None:
        text = text.replace('to = "parquet:./tables/flights"', f'to = "{good}"')
        text = text.replace("[pipeline]", '[pipeline]\nstate = "./state"')
    file = place.base / "flights.toml"
    file.write_text(text + more)
    return file


def _expected(fates: tuple[str, ...]) -> Counter[str]:
    return Counter(
        f'{{"row": {row}, "p": {partition}}}'
        for partition in range(PARTITIONS) for row in range(ROWS) if fate(row) in fates
    )  # fmt: skip


def _arrived(place: Place, topic: str) -> Counter[str]:
    payloads: list[Any] = read_arrow(place.url, topic, "payload", verify_checksum=False).column(0).to_pylist()
    return Counter(payload.decode() for payload in payloads)


def _name(place: Place, what: str) -> str:
    return f"{place.topic.removeprefix('air.')}_{what}"


@pytest.mark.turns(3)
@pytest.mark.parametrize("target", FACES)
def test_a_route_to_a_topic(place: Place, urls: dict[str, str], target: str, full: bool) -> None:
    """Whole messages, each header with its kind, in their partition, in order; the rest is where it was before."""
    if not full and target in ("lading", "kafka"):
        pytest.skip("the others run with LADING_TEST_FULL=1; test_everything_to_topics has these")
    topic = _name(place, "late")
    counts = Driver(_write(place, f"{urls[target]}/{topic}")).run()
    assert counts["to.route 1"] == sum(_expected(("late",)).values())
    assert counts["read"] == PARTITIONS * ROWS == counts["good"] + counts["routed"] + counts["quarantined"]
    columns = ", ".join(("partition", "offset", *COMPARED))
    sent = read_arrow(place.url, place.topic, columns, verify_checksum=False).to_pylist()
    late = [row for row in sent if fate(row["offset"]) == "late"]
    there = read_arrow(place.url, topic, columns).to_pylist()
    if target != "nsq":
        assert {one["partition"] for one in there} == set(range(PARTITIONS))
        for partition in range(PARTITIONS):
            wanted = [[row[name] for name in COMPARED] for row in late if row["partition"] == partition]
            assert [[row[name] for name in COMPARED] for row in there if row["partition"] == partition] == wanted
    else:
        marks = [[header for header in row["headers"] if header["key"] == "lading-dedupe"] for row in there]
        assert all(len(mark) == 1 for mark in marks)
        assert len({mark[0]["value"] for mark in marks}) == len(there) == len(late)
    assert Driver(_write(place, f"{urls[target]}/{topic}")).run() == {}


def test_everything_to_topics(place: Place, urls: dict[str, str]) -> None:
    """Good messages, a route and the quarantine each in a topic; quarantined messages are in the table, too."""
    names = {what: _name(place, what) for what in ("good", "late", "failed")}
    file = _write(
        place, f"{urls['kafka']}/{names['late']}", f'[quarantine]\nto = "{urls["iggy"]}/{names["failed"]}"\n',
        good=f"{place.url}/{names['good']}",
    )  # fmt: skip
    assert checked(file) == []
    driver = Driver(file)
    driver.run()
    assert driver.plan.places["route 1"] == f"{urls['kafka']}/{names['late']}"
    assert _arrived(place, names["good"]) == _expected(("flights",))
    assert _arrived(place, names["late"]) == _expected(("late",))
    failed = _expected(("missing_header", "bad_value", "checksum_mismatch"))
    assert _arrived(place, names["failed"]) == failed

    assert sum(1 for _ in (place.base / "state_quarantine").glob("*.parquet")) > 0


PHASES = ("errands", "half", "sent", "done", "published")
"""Before anything is sent; after some of it; after all of it, before that is noted; when it is noted, before the batch
is; and before the checkpoint knows."""
SAMPLE = {("half", "kafka"), ("half", "iggy"), ("sent", "nsq"), ("sent", "lading")}


@pytest.mark.turns(4)
@pytest.mark.parametrize("target", FACES)
@pytest.mark.parametrize("phase", PHASES)
def test_crashes_between_send_and_commit(
    place: Place, urls: dict[str, str], target: str, phase: str, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    if not full and (phase, target) not in SAMPLE:
        pytest.skip("the whole matrix runs with LADING_TEST_FULL=1")
    topic = _name(place, "late")
    file = _write(place, f"{urls[target]}/{topic}")

    def strike(reached: str) -> None:
        if reached == phase:
            raise Crash(phase)

    _break_sending(monkeypatch, strike)
    with pytest.raises(Crash):
        Driver(file, strike).run()
    monkeypatch.undo()
    Driver(file).run()
    expected, arrived = _expected(("late",)), _arrived(place, topic)
    lost, doubled = sum((expected - arrived).values()), sum((arrived - expected).values())
    print(f"to {target}, crashed in {phase}: sent {sum(expected.values()):,}, lost {lost}, doubled {doubled}")
    assert lost == 0
    if target in EXACT or phase in ("errands", "done", "published"):
        assert doubled == 0
    else:
        # a queue takes nothing back; readers know a repeat by its mark
        assert doubled > 0
        marks = read_arrow(place.url, topic, "mark string from lading-dedupe").column(0).to_pylist()
        assert len(set(marks)) == sum(expected.values())


def _break_sending(monkeypatch: pytest.MonkeyPatch, strike: Any) -> None:
    send, by_partition, done = delivery.send_once, side_effects._by_partition, SendingRecord.note_done

    def strike_half(*arguments: Any) -> Any:
        for number, part in enumerate(by_partition(*arguments)):
            if number:
                strike("half")
            yield part

    def strike_sent(*arguments: Any) -> int:
        count = send(*arguments)
        strike("sent")
        return count

    def strike_done(self: SendingRecord, target: str) -> None:
        done(self, target)
        strike("done")

    monkeypatch.setattr(side_effects, "_by_partition", strike_half)
    monkeypatch.setattr(side_effects, "send_once", strike_sent)
    monkeypatch.setattr(SendingRecord, "note_done", strike_done)


def test_what_a_topic_cannot_hold_goes_to_quarantine(place: Place, urls: dict[str, str]) -> None:
    """A payload longer than NSQ takes: the others arrive, and this one is listed with the topic that refused it."""
    topic, wide = _name(place, "late"), f"{place.topic}_wide"
    place.transport.create_topic(wide, 1)
    payloads = [b"1", bytes(2_000_000), b"3"]
    place.transport.send(wide, 0, complete(3, {"payload": pa.array(payloads)}))
    text = _write(place, f"{urls['nsq']}/{topic}").read_text().replace(f'"{place.topic}"', f'"{wide}"')
    text = text.replace("string required", "string").replace("delay > 60", "carrier IS NULL")
    file = place.base / "flights.toml"
    file.write_text(text.replace("[good]", "[quality]\nmin_messages = 9\n[good]"))
    counts = Driver(file).run()
    assert (counts["routed"], counts["quarantined"], counts["reason.refused_by_target.route 1"]) == (2, 1, 1)
    assert _arrived(place, topic) == Counter(["1", "3"])
    (row,) = Quarantine(PipelineSettings.load(file)).rows(reasons=["refused_by_target"])
    assert row["message"] == f"{wide}/0/1"
    assert row["detail"] == f"topic {topic} at {urls['nsq']} (route 1) cannot hold the message, not even with a carrier"


LOOP = "is the topic that the pipeline reads"
REFUSED = {
    "unknown scheme": ("kafak://127.0.0.1:9092/late", "'kafak' URLs are not supported; did you mean kafka://"),
    "no topic": ("kafka://127.0.0.1:9092", "names no topic; write for example kafka://127.0.0.1:9092/flights"),
    "two names": ("iggy://127.0.0.1/a/b", "a topic in a stream is written STREAM.TOPIC"),
    "a directory": ("file:///tmp/data/late", "is no server|is not a server"),
    "a store": ("s3://bucket/late", "a table begins with its form; write parquet:s3://bucket/late"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_addresses(place: Place, what: str) -> None:
    to, sentence = REFUSED[what]
    with pytest.raises(SettingError, match=sentence) as refused:
        PipelineSettings.load(_write(place, to))
    assert "flights.toml: route.to cannot be" in str(refused.value).replace("route[1]", "route")


def test_loops(place: Place, urls: dict[str, str]) -> None:
    """The source itself as a target, by the same address, and by that of another protocol."""
    with pytest.raises(SettingError, match=f"route 1 .*{LOOP}"):
        Driver(_write(place, f"{place.url}/{place.topic}"))
    with pytest.raises(LocalError, match=f"route 1 .*{LOOP}, under another address"):
        Driver(_write(place, f"{urls['kafka']}/{place.topic}")).run()
    with pytest.raises(SettingError, match=f"quarantine.to .*{LOOP}"):
        Driver(_write(place, "parquet:./late", f'[quarantine]\nto = "{place.url}/{place.topic}"'))


def test_keys_that_need_a_table(place: Place) -> None:
    to = f"{place.url}/late"
    with pytest.raises(SettingError, match=r"route 1 has columns but no table: .* takes whole messages"):
        PipelineSettings.load(_write(place, f'{to}"\ncolumns = ["offset"]\n#"'))
    with pytest.raises(SettingError, match="route 1 has partition_by but no table"):
        PipelineSettings.load(_write(place, f'{to}"\npartition_by = ["carrier"]\n#"'))
    with pytest.raises(SettingError, match="route 1 takes rows that the steps made to"):
        PipelineSettings.load(_write(place, to, '[step]\nsql = "SELECT * FROM messages"'))
    text = _write(place, to, good=to).read_text().replace('state = "./state"', "")
    (place.base / "flights.toml").write_text(text)
    with pytest.raises(SettingError, match=r"good.to is a topic, which has no directory for the state"):
        PipelineSettings.load(place.base / "flights.toml")
    more = f'[quarantine]\nto = "{to}"\ntopic = "x"'
    with pytest.raises(SettingError, match=r"quarantine.to is a topic, and quarantine.topic or quarantine.server"):
        PipelineSettings.load(_write(place, to, more))


def test_a_state_that_was_put_back_loses_nothing(place: Place, urls: dict[str, str]) -> None:
    """Its manifests have numbers that the target knows already, of batches with other messages."""
    late, good = (_name(place, what) for what in ("restored_late", "restored_good"))
    file = _write(place, f"{urls['lading']}/{late}", good=f"{urls['lading']}/{good}")
    home, kept = place.base, place.base.with_name("kept")
    Driver(file).run()
    # the whole directory, with the quarantine that would refuse an older state
    shutil.copytree(home, kept)
    sent = Counter[str]()
    for rows in (300, 600):
        for partition in range(PARTITIONS):
            place.transport.send(place.topic, partition, messages(partition, rows))
            sent += Counter(
                f'{{"row": {row}, "p": {partition}}}' for row in range(rows) if fate(row) in ("late", "good")
            )
        Driver(file).run()
        if kept.exists():
            shutil.rmtree(home)
            kept.rename(home)
    arrived = _arrived(place, late) + _arrived(place, good)
    # what the state does not know that it sent comes again
    assert not (_expected(("late", "good")) + sent) - arrived
