"""What cannot be mirrored: one sentence, what to do, nothing lost, nothing twice."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from lading import Producer, read_arrow, testing
from lading.mirror.run import run_mirror
from lading.mirror.settings import MirrorSettings, parse_renames
from lading.mirror.state import MappedRange, MirrorState, Range, lock_state
from lading.model.errors import DataLoss, LadingError, LimitExceeded, LocalError, SettingError
from lading.transports.lading.transport import LadingTransport
from lading.transports.open import open_transport
from tests.mirror.conftest import MESSAGES, contents, fill
from tests.topic_limits import configure_topic, limit_messages


def test_source_and_target_are_the_same(broker: testing.BrokerProcess, urls: dict[str, str], mirror: Any) -> None:
    with pytest.raises(SettingError, match="source and target are the same"):
        mirror(broker.url, broker.url, "flights", "flights")
    with pytest.raises(LocalError, match="the same topic of the same broker"):
        mirror(urls["file"], broker.url, "flights", "flights")


def test_a_name_that_the_target_cannot_have(broker: testing.BrokerProcess, urls: dict[str, str], mirror: Any) -> None:
    open_transport(broker.url).create_topic("übersee", 1)
    with pytest.raises(LocalError, match=r"--rename übersee=NEW, or leave it out with --exclude"):
        mirror(broker.url, urls["kafka"], "übersee", "übersee")


def test_fewer_partitions_at_the_target(broker: testing.BrokerProcess, mirror: Any) -> None:
    open_transport(broker.url).create_topic("narrow", 1)
    with pytest.raises(LocalError, match="has 1 partitions of it, the source 2"):
        mirror(broker.url, broker.url, "flights", "narrow")


def test_a_directory_is_no_target(urls: dict[str, str], mirror: Any) -> None:
    with pytest.raises(LocalError, match="a directory is only read"):
        mirror(urls["lading"], urls["file"], "flights", "elsewhere")


def test_a_message_that_is_too_large_stops_or_is_counted(
    broker: testing.BrokerProcess, urls: dict[str, str], mirror: Any
) -> None:
    open_transport(broker.url).create_topic("large", 1)
    with Producer(broker.url) as producer:
        for size in (10, 2_000_000, 20):
            producer.send("large", bytes(size))
    with pytest.raises(LimitExceeded, match=r"partition 0, offset 1 of the source.*--on-refused skip"):
        mirror(broker.url, urls["nsq"], "large", "large_nsq")
    done = mirror(broker.url, urls["nsq"], "large", "large_nsq", on_refused="skip", fidelity=True)
    assert (done.messages, done.topics[0].refused) == (2, 1)
    assert next(row for row in done.fidelity.rows() if row["fact"] == "size")["lost"] == 1
    assert read_arrow(broker.url, "large_nsq").column("payload").to_pylist() == [bytes(10), bytes(20)]


@pytest.mark.parametrize("on_refused", ["stop", "skip"])
def test_a_topic_whose_limit_is_smaller_than_a_message(
    broker: testing.BrokerProcess, urls: dict[str, str], mirror: Any, on_refused: str
) -> None:
    noise = Random(17).randbytes(100_000)
    noisy, quiet = f"noisy_{on_refused}", f"quiet_{on_refused}"
    for name in (noisy, quiet):
        open_transport(broker.url).create_topic(name, 1)
    with Producer(broker.url) as producer:
        for payload in (b"1", noise, bytes(50_000), b"3"):
            producer.send(noisy, payload)

    limit_messages(broker.endpoints["kafka"], quiet, 10_000)
    with pytest.raises(LimitExceeded) as refused:
        mirror(broker.url, urls["kafka"], noisy, quiet)
    assert "partition 0, offset 1 of the source: it takes 100" in str(refused.value)
    assert "the topic at most 10000 (max.message.bytes); mirror the others with --on-refused skip" in str(refused.value)
    assert read_arrow(broker.url, quiet).num_rows == 0
    if on_refused == "stop":
        limit_messages(broker.endpoints["kafka"], quiet, 1_000_000)
    done = mirror(broker.url, urls["kafka"], noisy, quiet, on_refused=on_refused, fidelity=True)
    # 50,000 zeros are sent compressed, as that is what the topic counts
    sent = [b"1", bytes(50_000), b"3"] if on_refused == "skip" else [b"1", noise, bytes(50_000), b"3"]
    assert (done.messages, done.topics[0].refused) == (len(sent), 4 - len(sent))
    assert next(row for row in done.fidelity.rows() if row["fact"] == "size")["lost"] == 4 - len(sent)
    assert read_arrow(broker.url, quiet).column("payload").to_pylist() == sent
    assert mirror(broker.url, urls["kafka"], noisy, quiet, on_refused=on_refused).messages == 0


@pytest.mark.parametrize("on_refused", ["stop", "skip"])
def test_messages_that_the_target_refuses_when_they_are_sent(
    broker: testing.BrokerProcess, urls: dict[str, str], mirror: Any, on_refused: str
) -> None:
    late, strict = f"late_{on_refused}", f"strict_{on_refused}"
    for name in (late, strict):
        open_transport(broker.url).create_topic(name, 2)
    now_us = time.time_ns() // 1000
    year_us = 365 * 86_400 * 1_000_000
    with Producer(broker.url) as producer:
        for number in range(20):
            old = number in (5, 8, 19)
            time_us = now_us - (year_us if old else 0)
            producer.send(late, b"%d" % number, partition=number % 2, timestamp=time_us)
    # the time of a message is no bound that a size could be measured by: only the target says no
    configure_topic(broker.endpoints["kafka"], strict, "message.timestamp.before.max.ms", "3600000")

    if on_refused == "stop":
        with pytest.raises(LimitExceeded, match=r"cannot take partition (0, offset 4|1, offset 2) of the source"):
            mirror(broker.url, urls["kafka"], late, strict)
        assert read_arrow(broker.url, strict).num_rows == 0
        return
    done = mirror(broker.url, urls["kafka"], late, strict, on_refused="skip", fidelity=True)
    (figures,) = done.topics
    assert (done.messages, figures.refused) == (17, 3)
    places = [sentence.partition(":")[0] for sentence in figures.refusals]
    assert places == ["partition 0, offset 4", "partition 1, offset 2", "partition 1, offset 9"]
    sizes = next(row for row in done.fidelity.rows() if row["fact"] == "size")
    assert (sizes["messages"], sizes["lost"]) == (20, 3)
    arrived: Any = read_arrow(broker.url, strict).column("payload").to_pylist()
    assert sorted(map(int, arrived)) == [number for number in range(20) if number not in (5, 8, 19)]
    assert mirror(broker.url, urls["kafka"], late, strict, on_refused="skip").messages == 0


def test_refused_messages_are_counted_after_a_crash_too(
    broker: testing.BrokerProcess, urls: dict[str, str], mirror: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("late_crash", "strict_crash"):
        open_transport(broker.url).create_topic(name, 1)
    now_us = time.time_ns() // 1000
    with Producer(broker.url) as producer:
        for number in range(10):
            time_us = now_us - (365 * 86_400 * 1_000_000 if number == 4 else 0)
            producer.send("late_crash", b"%d" % number, timestamp=time_us)
    configure_topic(broker.endpoints["kafka"], "strict_crash", "message.timestamp.before.max.ms", "3600000")

    class Crash(Exception):
        pass

    def crash(*_: object) -> None:
        raise Crash

    # what was sent is visible, and the state does not know it yet
    with monkeypatch.context() as crashing, pytest.raises(Crash):
        crashing.setattr(MirrorState, "finish", crash)
        mirror(broker.url, urls["kafka"], "late_crash", "strict_crash", on_refused="skip")
    assert read_arrow(broker.url, "strict_crash").num_rows == 9
    done = mirror(broker.url, urls["kafka"], "late_crash", "strict_crash", on_refused="skip")
    assert (done.messages, done.topics[0].refused) == (9, 1)
    assert done.topics[0].refusals[0].startswith("partition 0, offset 4: ")
    arrived = read_arrow(broker.url, "strict_crash").column("payload").to_pylist()
    assert arrived == [b"%d" % number for number in range(10) if number != 4]


@pytest.mark.parametrize("source", ["lading://127.0.0.1:1", "kafka://127.0.0.1:1", "lading://", "/nonexistent"])
def test_a_refused_mirror_leaves_no_state(
    broker: testing.BrokerProcess, urls: dict[str, str], mirror: Any, tmp_path: Path, source: str
) -> None:
    state = tmp_path / "state"
    with pytest.raises(LadingError):
        run_mirror(
            MirrorSettings(source, urls["kafka"], ["flights"], state=state, quiet_ms=300),
            source_options={"retries": 0} if "://" in source else {},
        )
    assert not state.exists()
    # in a directory that was there, too, and whatever the refused command named
    state.mkdir()
    with pytest.raises(LadingError):
        mirror(source, urls["kafka"], "flights", "refused_first")
    assert list(state.iterdir()) == []
    assert mirror(broker.url, urls["kafka"], "flights", f"right_{abs(hash(source))}").messages == MESSAGES


def test_a_state_by_which_nothing_was_sent_is_free_for_another_pair(
    broker: testing.BrokerProcess, urls: dict[str, str], mirror: Any, tmp_path: Path
) -> None:
    left = MirrorState(tmp_path / "state")
    left.require_pair("lading://127.0.0.1:1", "kafka://127.0.0.1:2")
    left.close()
    assert mirror(broker.url, urls["kafka"], "flights", "after_a_wrong_pair").messages == MESSAGES
    with pytest.raises(LocalError, match="is the state of a mirror whose source is"):
        mirror(urls["iggy"], urls["kafka"], "flights", "after_a_wrong_pair")
    assert (tmp_path / "state" / "mirror.sqlite").exists()


def test_a_source_that_was_cut_back(broker: testing.BrokerProcess, mirror: Any, tmp_path: Path) -> None:
    fill(broker.url, "short", 10)
    mirror(broker.url, broker.url, "short", "short_copy")
    state = MirrorState(tmp_path / "state")
    state.finish("short", state.begin("short", [Range(0, 5, 50, None, 0)]), {})
    state.close()
    with pytest.raises(DataLoss, match="it ends at offset 5, before 50, where the mirror stopped"):
        mirror(broker.url, broker.url, "short", "short_copy")


def test_a_source_that_was_made_again(broker: testing.BrokerProcess, mirror: Any) -> None:
    fill(broker.url, "anew", 4)
    mirror(broker.url, broker.url, "anew", "anew_copy")
    transport = open_transport(broker.url)
    assert isinstance(transport, LadingTransport)
    transport.delete_topic("anew")
    fill(broker.url, "anew", 4)
    with pytest.raises(DataLoss, match="was deleted and created again"):
        mirror(broker.url, broker.url, "anew", "anew_copy")


def test_a_source_that_lost_messages_by_retention(
    broker: testing.BrokerProcess, urls: dict[str, str], mirror: Any, tmp_path: Path
) -> None:
    fill(broker.url, "trimmed", 20, partitions=1)
    mirror(urls["kafka"], broker.url, "trimmed", "trimmed_copy")
    fill(broker.url, "trimmed", 20, first=20, partitions=1)
    admin = AdminClient({"bootstrap.servers": broker.endpoints["kafka"]})
    for done in admin.delete_records([TopicPartition("trimmed", 0, 25)]).values():
        done.result(10)
    with pytest.raises(DataLoss, match=r"offsets 20 to 24 were deleted by retention; .* mirror with --on-loss skip"):
        mirror(urls["kafka"], broker.url, "trimmed", "trimmed_copy")
    assert mirror(urls["kafka"], broker.url, "trimmed", "trimmed_copy", on_loss="skip").messages == 15
    assert len(contents(broker.url, "trimmed_copy")) == 35


def test_patterns_that_choose_nothing(broker: testing.BrokerProcess, mirror: Any) -> None:
    with pytest.raises(LocalError, match="no topic is chosen by --topic and --exclude; there are flights"):
        mirror(broker.url, broker.url, "ship?", "x")


def test_one_process_runs_a_mirror(tmp_path: Path, broker: testing.BrokerProcess, mirror: Any) -> None:
    with lock_state(tmp_path / "state"), pytest.raises(LocalError, match="another process runs the mirror"):
        mirror(broker.url, broker.url, "flights", "copy")


def test_the_state_of_another_mirror(tmp_path: Path) -> None:
    state = MirrorState(tmp_path)
    state.require_pair("kafka://a:1", "kafka://b:1")
    state.begin("t", [])
    with pytest.raises(LocalError, match="the state of a mirror whose target is"):
        state.require_pair("kafka://a:1", "kafka://c:1")


def test_translation_between_ranges(tmp_path: Path) -> None:
    state = MirrorState(tmp_path)
    first = state.begin("t", [Range(0, 0, 10, 100)])
    state.finish("t", first, {0: [MappedRange(0, 4, 100, True), MappedRange(6, 10, 104, True)]})
    second = state.begin("t", [Range(0, 10, 20, 108)])
    state.finish("t", second, {0: [MappedRange(10, 20, 108, False)]})
    assert [state.translate("t", 0, at) for at in (0, 3, 4, 5, 6, 9, 10, 15, 20)] == [
        100, 103, 104, 104, 104, 107, 108, 108, 108,
    ]  # fmt: skip
    with pytest.raises(LocalError, match="no offsets were mapped; mirrored topics are 't'"):
        state.translate("u", 0, 1)


@pytest.mark.parametrize("text", ["a", "a=", "=b"])
def test_renames(text: str) -> None:
    with pytest.raises(SettingError, match="write OLD=NEW"):
        parse_renames([text])


def test_include_and_exclude() -> None:
    settings = MirrorSettings("a", "b", ["air*", "sea"], ["*_dead"])
    assert [name for name in ("air", "airline", "air_dead", "sea", "land") if settings.is_chosen(name)] == [
        "air", "airline", "sea",
    ]  # fmt: skip
    assert settings.named_topics is None
