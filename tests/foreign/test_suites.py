"""Suites of others against Lading, whole; what fails here and not on the real server is listed with its reason."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import Final

import pytest

from tests.foreign.__main__ import compare_sides
from tests.foreign.nsqd_stand_in import choose_address, make_command, parse_options
from tests.foreign.results import compare, read_go_events, read_librdkafka, read_pytest, write_table
from tests.foreign.suites import SUITES, Suite
from tests.interop.go_programs import Unavailable

KNOWN: Final[Mapping[str, Mapping[str, str]]] = {
    "youzan-go-nsq": {
        "TestProducerPublishWithExt": "subscribes without extend_support: the fork refuses it (docs/reference/nsq.md)",
        "TestConsumerSubToExtTopic": "connects to 1.2.3.4, and loses a race of its own if that is refused at once",
    },
}
"""By suite: tests that may fail here, each with the reason."""
FAIL_ON_BOTH: Final = frozenset({"kafka-go", "kafka-python", "librdkafka", "gnsq"})
"""Suites with tests that fail on the real server as well: they are run against it, too."""
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


def test_lines_of_pytest_become_outcomes() -> None:
    """As ``pytest -v`` of 9.2 prints them."""
    lines = """
tests/test_a.py::test_one PASSED                                         [ 10%]
tests/test_a.py::test_two[a b-1] FAILED                                  [ 20%]
tests/test_a.py::test_three SKIPPED (needs a cluster)                    [ 30%]
tests/test_a.py::Tests::test_four ERROR                                  [ 40%]
tests/test_a.py::test_five PASSED                                        [ 50%]
tests/test_a.py::test_five ERROR                                         [ 50%]
tests/test_a.py::test_six[E_PUB_FAILED PUB failed] PASSED                [ 60%]
tests/test_a.py::test_seven XFAIL (later)                                [ 70%]
tests/test_b.py::test_hangs
=============================== warnings summary ===============================
tests/test_a.py::test_one
  warnings.py:1: DeprecationWarning: old
"""
    assert read_pytest(lines) == {
        "tests/test_a.py::test_one": "pass", "tests/test_a.py::test_two[a b-1]": "fail",
        "tests/test_a.py::test_three": "skip", "tests/test_a.py::Tests::test_four": "fail",
        "tests/test_a.py::test_five": "fail", "tests/test_a.py::test_six[E_PUB_FAILED PUB failed]": "pass",
        "tests/test_a.py::test_seven": "skip", "tests/test_b.py::test_hangs": "unfinished",
    }  # fmt: skip


def test_lines_of_librdkafka_become_outcomes() -> None:
    """As test-runner of 2.12.1 prints them."""
    lines = (
        "\x1b[36m[0001_multiobj /  0.0s] ================= Running test 0001_multiobj =================\x1b[0m\n"
        "\x1b[32m[0001_multiobj /  5.1s] ================= Test 0001_multiobj PASSED =================\x1b[0m\n"
        "[0002_unkpart               /  0.0s] ================= Running test 0002_unkpart =================\n"
        '### Test "0002_unkpart (do_test:52)" failed at test.c:100\n### Test "<MAIN>" failed at test.c:2282:main()\n'
        "[0003_msgmaxsize            /  0.0s] ================= Running test 0003_msgmaxsize =================\n"
        "[0004_conf                  /  0.0s] ================= Test 0004_conf SKIPPED =================\n"
        "\x1b[31m[0005_order /  2.0s] ================= Test 0005_order FAILED =================\x1b[0m\n"
    )
    assert read_librdkafka(lines) == {
        "0001_multiobj": "pass", "0002_unkpart": "fail", "0003_msgmaxsize": "unfinished", "0004_conf": "skip",
        "0005_order": "fail",
    }  # fmt: skip


def test_options_of_nsqd_become_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_LADING", "python")
    options = parse_options(
        ["--tcp-address", "127.0.0.1:0", "-data-path=/d", "--verbose", "--tls-cert", "c", "--tls-key=k"]
    )
    assert options == {
        "tcp-address": "127.0.0.1:0", "data-path": "/d", "verbose": "true", "tls-cert": "c", "tls-key": "k",
    }  # fmt: skip
    assert choose_address("0.0.0.0:4150") == ("127.0.0.1", 4150) and choose_address(":0")[1] > 0
    command = make_command("nsqd", options, [("127.0.0.1", 1), ("127.0.0.1", 2)])
    assert command[:6] == ["python", "-m", "lading", "serve", "--data", "/d/lading"]
    assert {
        "endpoints.nsqd_http.address=127.0.0.1:2", "endpoints.nsqlookupd_tcp.enabled=false",
        "endpoints.nsqd_tcp.tls.key=k", "nsq.compat=upstream",
    } <= {*command}  # fmt: skip


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
@pytest.mark.timeout(7_200)
@pytest.mark.skipif(not FULL, reason="suites of others take minutes: with LADING_TEST_FULL=1")
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_nothing_fails_here_alone(suite: Suite) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rn", "true"], check=False).returncode:
        pytest.skip("no network namespace can be made here (unshare -rn)")
    try:
        row = compare_sides(suite, has_control=suite.name in FAIL_ON_BOTH)
    except Unavailable as missing:
        pytest.skip(str(missing))
    assert set(row.failed_here) <= KNOWN.get(suite.name, {}).keys()
    assert row.passed
