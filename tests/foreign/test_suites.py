"""Suites of others against Lading, whole; what fails here and not on the real server is listed with its reason."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import Final

import pytest

from tests.foreign.__main__ import run_suite_apart
from tests.foreign.results import compare, read_go_events, write_table
from tests.foreign.suites import SUITES, GoSuite
from tests.interop.go_programs import Unavailable, compile_tests

KNOWN: Final[Mapping[str, Mapping[str, str]]] = {
    "youzan-go-nsq": {
        "TestProducerPublishWithExt": "subscribes without extend_support: the fork refuses it (docs/reference/nsq.md)",
        "TestConsumerSubToExtTopic": "connects to 1.2.3.4, and loses a race of its own if that is refused at once",
    },
}
"""By suite: tests that may fail here, each with the reason."""
FULL = os.environ.get("LADING_TEST_FULL") == "1"


def test_events_become_outcomes() -> None:
    """The events are those of go tool test2json of Go 1.26."""
    events = [
        '{"Action":"start"}',
        '{"Action":"run","Test":"TestA"}',
        '{"Action":"run","Test":"TestA/one"}',
        '{"Action":"output","Test":"TestA/one","Output":"    a_test.go:5: no\\n"}',
        '{"Action":"fail","Test":"TestA/one","Elapsed":0.1}',
        '{"Action":"fail","Test":"TestA","Elapsed":0.1}',
        '{"Action":"skip","Test":"TestB","Elapsed":0}',
        '{"Action":"run","Test":"TestC"}',
        "panic: test timed out",
        '{"Action":"fail"}',
    ]
    assert read_go_events(events) == {"TestA": "fail", "TestA/one": "fail", "TestB": "skip", "TestC": "unfinished"}


def test_a_table_keeps_apart_what_fails_on_both() -> None:
    ours = {"A": "pass", "B": "fail", "C": "unfinished", "D": "skip", "E": "skip", "F": "pass"}
    real = {"A": "pass", "B": "fail", "C": "pass", "D": "skip", "E": "pass", "F": "fail"}
    row = compare("suite", "v1", ours, real)
    assert (row.passed, row.failed_on_both, row.failed_here, row.skipped_here) == (2, ["B"], ["C"], ["E"])
    assert row.failed_there == ["F"]
    assert "| suite v1 | 2 | 1 | 1 | 1 | 1 |" in write_table([row], has_control=True)
    alone = compare("suite", "v1", ours, None)
    assert (alone.failed_on_both, alone.failed_here, alone.skipped_here) == ([], ["B", "C"], ["D", "E"])
    assert "| suite v1 | 2 | – | 2 | 2 | – |" in write_table([alone], has_control=False)


@pytest.mark.interop
@pytest.mark.skipif(not FULL, reason="suites of others take minutes: with LADING_TEST_FULL=1")
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_nothing_fails_here_alone(suite: GoSuite) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rn", "true"], check=False).returncode:
        pytest.skip("no network namespace can be made here (unshare -rn)")
    try:
        compile_tests(suite.module, suite.version, suite.package)
        row = compare(suite.name, suite.version, run_suite_apart(suite, "ours"), None)
    except Unavailable as missing:
        pytest.skip(str(missing))
    assert set(row.failed_here) <= KNOWN.get(suite.name, {}).keys()
    assert row.passed
