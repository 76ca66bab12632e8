"""The tables of `nsq_effects.py` and `nsq_requests.py` on the real nsqd, from which their expected values come."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.endpoints import nsq_requests
from tests.endpoints.nsq_effects import CASES, ERRORS, Case, find_differences, read_answers
from tests.interop import go_programs
from tests.interop.go_programs import RunningNsq


@pytest.fixture(scope="module")
def nsqd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNsq]:
    try:
        with go_programs.running(tmp_path_factory.mktemp("nsqd")) as running:
            yield running
    except go_programs.Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.turns(4)
def test_the_table_is_true_of_the_real_nsqd(nsqd: RunningNsq, case: Case) -> None:
    topic = f"effects-{CASES.index(case)}"
    assert find_differences(case, nsqd.nsqd_tcp, nsqd.nsqd_http, topic) == []


def test_its_errors_are_those_of_the_table(nsqd: RunningNsq) -> None:
    assert [(sent, read_answers(nsqd.nsqd_tcp, "errors", sent, expected)) for sent, expected in ERRORS] == list(ERRORS)


@pytest.mark.parametrize("name", ["PUBLISHING", "TOPICS", "CHANNELS", "OTHERS", "LOOKUP"])
@pytest.mark.turns(4)
def test_the_table_of_requests_is_true_of_the_real_servers(nsqd: RunningNsq, name: str) -> None:
    run = nsq_requests.RequestRun(nsqd.nsqd_http, nsqd.nsqlookupd_http, name[:4].lower())
    assert run.find_differences(getattr(nsq_requests, name), at_lookup=name == "LOOKUP") == []
