"""The table of `tests/endpoints/nsq_effects.py` on upstream's real nsqd, from which its expected values come."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
    assert [(sent, read_answers(nsqd.nsqd_tcp, "errors", sent)) for sent, _ in ERRORS] == list(ERRORS)
