"""The checks of headers against our own broker, and against servers that change what they are sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest

from lading import testing
from lading.conformance import run as conformance_run
from lading.conformance.checks import CHECKS
from lading.conformance.report import to_junit
from lading.conformance.run import ConformanceReport, Verdict, run_conformance
from lading.model.errors import LadingError
from lading.model.headers import Header
from lading.model.message import Message
from lading.transports.kafka.transport import KafkaTransport
from lading.transports.nsq.transport import NsqTransport
from lading.transports.open import open_transport

ENDPOINTS = {"lading": "admin", "kafka": "kafka", "iggy": "iggy_tcp", "nsq": "nsqd_tcp"}
NO_FORM = {
    "lading": {},
    # no kinds but bytes
    "kafka": {"kinds": 14},
    # names once, no null, no empty value or name, at most 255 bytes, no key of a message
    "iggy": {"duplicates": 5, "null": 5, "empty": 6, "bytes": 1, "names": 1, "sizes": 3, "message": 5},
    # JSON: names once, texts, null as text only by the fork's clients; 65,535 bytes of headers
    "nsq": {"duplicates": 5, "bytes": 3, "names": 1, "sizes": 3, "message": 5, "kinds": 13},
}  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.BrokerProcess]:
    with testing.broker(durability="os") as running:
        yield running


def count_no_form(report: ConformanceReport) -> dict[str, int]:
    return dict(Counter(one.about for one in report.results if one.verdict is Verdict.NO_FORM))


def test_there_are_64_checks_with_names_of_their_own() -> None:
    assert len(CHECKS) == len({check.name for check in CHECKS}) == 64
    assert {check.about for check in CHECKS} == set(conformance_run.PROPERTIES)


@pytest.mark.parametrize("protocol", ENDPOINTS)
def test_our_broker_keeps_all_that_each_protocol_has_a_form_for(
    broker: testing.BrokerProcess, protocol: str, full: bool
) -> None:
    url = f"{protocol}://{broker.endpoints[ENDPOINTS[protocol]]}"
    report = run_conformance(url, random_messages=100_000 if full else 200, seed=7)
    assert report.is_kept and not report.random_changed
    assert not [one for one in report.results if one.verdict in (Verdict.CHANGED, Verdict.REFUSED)]
    expected: dict[str, int] = NO_FORM[protocol]
    found = count_no_form(report)
    assert {about: found.get(about, 0) for about in expected} == expected
    if protocol != "nsq":
        assert found == expected
    transport = open_transport(broker.url)
    left = [one.name for one in transport.topics() if one.name.startswith(conformance_run.TOPIC)]
    transport.close()
    assert not left or protocol == "nsq"


CHANGES: dict[str, tuple[Any, str]] = {
    "sorted": (lambda headers: sorted(headers, key=lambda one: one.key), "two headers, later letter first"),
    "one of each name": (lambda headers: list({one.key: one for one in headers}.values()), "a key twice, other values"),
    "null as empty": (lambda headers: [one._replace(value=one.value or b"") for one in headers], "a null value"),
    "empty as null": (lambda headers: [one._replace(value=one.value or None) for one in headers], "an empty value"),
    "text only": (
        lambda headers: [
            one._replace(value=one.value and one.value.decode(errors="replace").encode()) for one in headers
        ],
        "a value that is not UTF-8",
    ),
    "lower case": (lambda headers: [one._replace(key=one.key.lower()) for one in headers], "keys that differ by case"),
    "all lost": (lambda headers: [], "one header"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_server_that_changes_headers_is_found(
    broker: testing.BrokerProcess, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, check = CHANGES[name]
    real = conformance_run._list_headers
    monkeypatch.setattr(
        conformance_run,
        "_list_headers",
        lambda message: [
            (key, int(kind), value) for key, kind, value in change([Header(*row) for row in real(message)])
        ],
    )
    report = run_conformance(f"kafka://{broker.endpoints['kafka']}", random_messages=100, seed=7)
    assert not report.is_kept and report.random_changed
    changed = {one.name: one for one in report.results if one.verdict is Verdict.CHANGED}
    assert check in changed and changed[check].sent != changed[check].received
    assert "no headers" not in changed and "random headers" in changed
    suite = ElementTree.fromstring(to_junit(report))
    assert suite.get("failures") == str(len(changed)) and suite.get("tests") == "65"
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert sorted(map(str, failed)) == sorted(changed)


def test_a_message_that_does_not_come_back_is_found(
    broker: testing.BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conformance_run, "RECEIVE_S", 0.3)
    real = conformance_run._Probe._receive

    def lose(probe: Any, count: int) -> list[Message]:
        return [message for message in real(probe, count) if len(message.headers) < 1000]

    monkeypatch.setattr(conformance_run._Probe, "_receive", lose)
    report = run_conformance(f"kafka://{broker.endpoints['kafka']}", random_messages=0)
    changed = {one.name: one.detail for one in report.results if one.verdict is Verdict.CHANGED}
    assert changed == dict.fromkeys(("1,000 headers", "1,000 headers of 100 bytes"), "the message did not come back")


def test_a_server_whose_messages_have_no_headers_has_no_form_for_them(
    broker: testing.BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As upstream's nsqd, which tests/interop/test_nsqd_conformance.py asks itself."""
    monkeypatch.setattr(NsqTransport, "takes_headers", lambda self, topic: False)
    report = run_conformance(f"nsq://{broker.endpoints['nsqd_tcp']}", random_messages=50)
    plain = {check.name for check in CHECKS if not any(one.headers or one.key is not None for one in check.messages)}
    verdicts = {one.name: one.verdict for one in report.results}
    assert {name for name, verdict in verdicts.items() if verdict is Verdict.NO_FORM} >= verdicts.keys() - plain
    assert report.is_kept and not report.random_messages and not report.count(Verdict.REFUSED)
    assert verdicts["no headers"] is Verdict.KEPT


def test_a_refused_random_message_ends_no_run(broker: testing.BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance_run, "CHECKS", ())

    def refuse(*arguments: Any, **options: Any) -> None:
        raise LadingError("too large for it")

    monkeypatch.setattr(KafkaTransport, "send", refuse)
    report = run_conformance(f"kafka://{broker.endpoints['kafka']}", random_messages=50)
    assert [(one.name, one.verdict, one.detail) for one in report.results] == [
        ("random headers", Verdict.REFUSED, "too large for it")
    ]


def test_a_server_that_is_not_there_is_a_sentence() -> None:
    with pytest.raises(LadingError, match=r"127\.0\.0\.1:1"):
        run_conformance("kafka://127.0.0.1:1", timeout_s=1)
