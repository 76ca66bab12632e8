"""Requests of administrators have the effects that they have on nsqd 1.3.0, and the figures of ``/stats`` show them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lading import testing
from tests.endpoints import nsq_requests
from tests.endpoints.nsq_effects import CASES, ERRORS, Case, find_differences, read_answers


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.BrokerProcess]:
    with testing.broker(durability="os") as running:
        yield running


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.turns(4)
def test_effects_are_those_of_nsqd(broker: testing.BrokerProcess, case: Case) -> None:
    addresses = broker.endpoints["nsqd_tcp"], broker.endpoints["nsqd_http"]
    assert find_differences(case, *addresses, f"effects-{CASES.index(case)}") == []


def test_errors_are_those_of_nsqd(broker: testing.BrokerProcess) -> None:
    address = broker.endpoints["nsqd_tcp"]
    assert [(sent, read_answers(address, "errors", sent, expected)) for sent, expected in ERRORS] == list(ERRORS)


@pytest.mark.parametrize("name", ["PUBLISHING", "TOPICS", "CHANNELS", "OTHERS", "LOOKUP", "FRAGMENTS"])
@pytest.mark.turns(3)
def test_requests_are_answered_as_by_nsqd(broker: testing.BrokerProcess, name: str) -> None:
    run = nsq_requests.RequestRun(broker.endpoints["nsqd_http"], broker.endpoints["nsqlookupd_http"], name[:4].lower())
    assert run.find_differences(getattr(nsq_requests, name), at_lookup=name == "LOOKUP") == []
