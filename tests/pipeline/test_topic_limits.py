"""Limits of topics that messages go to: known before, lowered on the way, hidden from the login; crashes in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lading import read_arrow, testing
from lading.broker.core.access.rights import ResourceKind, Right
from lading.client.outgoing import complete
from lading.model.errors import LimitExceeded
from lading.pipeline import late_refusals, side_effects, staged_messages
from lading.pipeline.quarantine import Quarantine
from lading.pipeline.rows import COPY_SCHEMA
from lading.pipeline.sending_record import SendingRecord
from lading.pipeline.settings import PipelineSettings
from lading.tables.commit.state import PipelineStateDirectory
from lading.tables.formats.manifest import Manifests
from lading.transports.lading.transport import LadingTransport
from tests.endpoints.identity import PASSWORDS, broker_with_users, rule
from tests.topic_limits import limit_messages

from .conftest import Place
from .direct import Crash, Driver
from .flights import TOML

NOISE = Random(17).randbytes(100_000)
LATER = [b"1", NOISE, b"3", NOISE[:20_000], b"5"]
"""What a pipeline sends, of which the limit of 10,000 bytes refuses two."""


class BoundedTopic:
    """A pipeline whose route goes to a Kafka topic with a limit of its own."""

    def __init__(
        self,
        place: Place,
        address: str,
        payloads: list[bytes],
        there: LadingTransport | None = None,
        login: str = "",
        **settings: int,
    ) -> None:
        """``address`` is the Kafka endpoint of the broker ``there``, by default the one with the source."""
        self.late, wide = f"{place.topic.removeprefix('air.')}-late", f"{place.topic}-wide"
        self.server = f"kafka://{address}"
        self._address, self._there = address, there or place.transport
        place.transport.create_topic(wide, 1)
        self._there.create_topic(self.late, 1, settings)
        place.transport.send(wide, 0, complete(len(payloads), {"payload": pa.array(payloads)}))
        text = TOML.format(source=place.url, topic=place.topic, server=place.url, max_rows=1500)
        text = text.replace(f'"{place.topic}"', f'"{wide}"').replace("string required", "string")
        text = text.replace("delay > 60", "carrier IS NULL")
        text = text.replace("parquet:./tables/late", f"{self.server}/{self.late}{login}")
        self.file = place.base / "flights.toml"
        self.file.write_text(text.replace("[good]", "[quality]\nmin_messages = 9\n[good]"))

    def copy_quarantined(self, topic: str) -> None:
        """Send copies of quarantined messages to a topic."""
        self.file.write_text(self.file.read_text() + f'\n[quarantine]\nto = "{topic}"\n')

    def limit(self, size_bytes: int) -> None:
        limit_messages(self._address, self.late, size_bytes)

    def arrived(self) -> Counter[bytes]:
        payloads: list[Any] = read_arrow(self._there, self.late).column("payload").to_pylist()
        return Counter(payloads)

    def refused(self) -> dict[str, str]:
        """What is in the quarantine for its size: offset → why, each once."""
        rows = list(Quarantine(PipelineSettings.load(self.file)).rows(reasons=["refused_by_target"]))
        found = {row["message"].rpartition("/")[2]: row["detail"] for row in rows}
        assert len(found) == len(rows)
        return found

    def counts(self) -> Counter[str]:
        """The counts of all manifests together."""
        settings = PipelineSettings.load(self.file)
        state = PipelineStateDirectory.open(Path(settings.state_directory), settings.id, "pipeline")
        counts: Counter[str] = Counter()
        for number in state.manifests.numbers():
            counts.update(state.manifests.read(number).counts)
        return counts


def test_what_is_above_the_limit_of_a_topic_goes_to_quarantine(place: Place, served: testing.BrokerProcess) -> None:
    """The others arrive, and so does what is small enough compressed; the quarantine's own topic refuses it, too."""
    kafka = f"kafka://{served.endpoints['kafka']}"
    bounded = BoundedTopic(place, served.endpoints["kafka"], [b"1", NOISE, bytes(50_000), b"4"])
    bounded.limit(10_000)
    bounded.copy_quarantined(f"{kafka}/{bounded.late}")
    counts = Driver(bounded.file).run()
    assert (counts["routed"], counts["quarantined"], counts["copies_refused"]) == (3, 1, 1)
    assert bounded.arrived() == Counter([b"1", bytes(50_000), b"4"])
    (row,) = Quarantine(PipelineSettings.load(bounded.file)).rows(reasons=["refused_by_target"])
    assert row["message"].endswith("/0/1")
    assert row["detail"] == (
        f"topic {bounded.late} at {kafka} (route 1) takes at most 10000 bytes a message, headers included "
        "(max.message.bytes), and this one has more"
    )
    assert Driver(bounded.file).run() == {}


def test_the_limit_is_lowered_while_a_batch_is_on_its_way(place: Place, served: testing.BrokerProcess) -> None:
    """What a manifest promised to the topic goes to quarantine by another one, and the run goes on."""
    bounded = BoundedTopic(place, served.endpoints["kafka"], LATER)
    bounded.copy_quarantined(f"{place.url}/{place.copies}")
    Driver(bounded.file, lambda phase: bounded.limit(10_000) if phase == "errands" else None).run()
    counts = bounded.counts()
    assert (counts["read"], counts["good"], counts["routed"], counts["quarantined"]) == (5, 0, 3, 2)
    assert (counts["to.route 1"], counts["reason.refused_by_target.route 1"]) == (3, 2)
    assert bounded.arrived() == Counter([b"1", b"3", b"5"])
    told = "takes at most 10000 bytes a message, headers included (max.message.bytes), and this one has more"
    sentence = f"topic {bounded.late} at {bounded.server} (route 1) {told}"
    assert bounded.refused() == {"1": sentence, "3": sentence}
    copied = read_arrow(place.url, place.copies, "payload, why string from lading-quarantine-reason").to_pylist()
    assert [one["payload"] for one in copied] == [NOISE, NOISE[:20_000]]
    # the topic is asked again when the next run begins
    assert Driver(bounded.file).run() == {}
    done = Quarantine(PipelineSettings.load(bounded.file)).redrive(reasons=["refused_by_target"])
    assert done.sent == 2
    counts = Counter(Driver(bounded.file).run())
    assert (counts["read"], counts["quarantined"]) == (2, 2)


def test_the_limit_is_lowered_behind_a_crash(place: Place, served: testing.BrokerProcess) -> None:
    """The next run finishes the batch, whose files are staged, by the limit of then."""
    bounded = BoundedTopic(place, served.endpoints["kafka"], LATER)

    def strike(phase: str) -> None:
        if phase == "errands":
            raise Crash(phase)

    with pytest.raises(Crash):
        Driver(bounded.file, strike).run()
    bounded.limit(10_000)
    for _ in range(2):
        assert Driver(bounded.file).run() == {}
        assert bounded.arrived() == Counter([b"1", b"3", b"5"])
        assert bounded.refused().keys() == {"1", "3"}
    assert bounded.counts()["routed"] == 3


def test_the_limit_is_hidden_from_the_login(place: Place, tmp_path: Path) -> None:
    """It may send, and not see settings: what is refused when it is sent goes to quarantine, the rest arrives."""
    kinds = (ResourceKind.TOPIC, ResourceKind.TRANSACTION, ResourceKind.GROUP)
    rules = [rule("ann", Right.ALL, "*", kind=kind) for kind in kinds]
    rules.append(rule("ann", Right.DESCRIBE_CONFIGS, "*", denies=True))
    (tmp_path / "password").write_text(PASSWORDS["ann"])
    login = f"?username=ann&password_file={tmp_path}/password"
    with broker_with_users(tmp_path / "data", rules) as (broker, tokens):
        there = LadingTransport(broker.url, token=tokens["root"])
        bounded = BoundedTopic(place, broker.endpoints["kafka"], LATER, there, login, message_bytes_max=10_000)
        Driver(bounded.file).run()
        assert bounded.arrived() == Counter([b"1", b"3", b"5"])
        why = bounded.refused()
        assert why.keys() == {"1", "3"}
        assert "takes fewer bytes a message, headers included (max.message.bytes), than this one has" in why["1"]
        counts = bounded.counts()
        assert (counts["read"], counts["good"], counts["routed"], counts["quarantined"]) == (5, 0, 3, 2)
        there.close()


Breaking = Callable[[pytest.MonkeyPatch], None]


def crash_behind(place: Any, name: str, times: int = 1) -> Breaking:
    """Return what lets a crash happen behind the call of this number of a function."""

    def put(patch: pytest.MonkeyPatch) -> None:
        real, done = getattr(place, name), 0

        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal done
            made = real(*arguments, **named)
            done += 1
            if done == times:
                raise Crash(name)
            return made

        patch.setattr(place, name, call)

    return put


CRASHES = {
    "refused before it is noted": crash_behind(side_effects, "find_late_refusals"),
    "noted, nothing sent": crash_behind(SendingRecord, "note_refused"),
    "the rest sent, not noted": crash_behind(side_effects, "send_copies"),
    "noted as sent": crash_behind(SendingRecord, "note_done"),
    "quarantined rows staged": crash_behind(late_refusals._LateQuarantine, "finish"),
    "the second manifest written": crash_behind(Manifests, "write"),
    "its files published": crash_behind(late_refusals, "amend"),
    "its copies sent": crash_behind(SendingRecord, "note_done", 2),
    "all done": crash_behind(SendingRecord, "forget"),
}


@pytest.mark.turns(3)
@pytest.mark.parametrize("crash", CRASHES)
def test_a_crash_changes_nothing(
    place: Place, served: testing.BrokerProcess, crash: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded = BoundedTopic(place, served.endpoints["kafka"], LATER)
    bounded.copy_quarantined(f"{place.url}/{place.copies}")

    def strike(phase: str) -> None:
        if phase == "errands":
            bounded.limit(10_000)
            CRASHES[crash](monkeypatch)

    with pytest.raises(Crash):
        Driver(bounded.file, strike).run()
    monkeypatch.undo()
    Driver(bounded.file).run()
    assert bounded.arrived() == Counter([b"1", b"3", b"5"])
    assert bounded.refused().keys() == {"1", "3"}
    counts = bounded.counts()
    assert (counts["read"], counts["good"], counts["routed"], counts["quarantined"]) == (5, 0, 3, 2)
    assert read_arrow(place.url, place.copies).num_rows == 2


def test_a_batch_that_was_staged_by_a_version_without_places_stops(
    place: Place, served: testing.BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its messages do not tell where they were read, so that they wait for the limit to be raised."""
    bounded = BoundedTopic(place, served.endpoints["kafka"], LATER)
    whole = staged_messages._to_messages
    monkeypatch.setattr(staged_messages, "MESSAGE_SCHEMA", COPY_SCHEMA)
    monkeypatch.setattr(staged_messages, "_to_messages", lambda *given: whole(*given).select(COPY_SCHEMA.names))
    monkeypatch.setattr(staged_messages, "ORIGIN", ())
    with pytest.raises(LimitExceeded, match=r"max\.message\.bytes\); nothing is lost: raise that limit"):
        Driver(bounded.file, lambda phase: bounded.limit(10_000) if phase == "errands" else None).run()
    assert bounded.arrived() == Counter()
    bounded.limit(1_000_000)
    Driver(bounded.file).run()
    assert bounded.arrived() == Counter(LATER)
