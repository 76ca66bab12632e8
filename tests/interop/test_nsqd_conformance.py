"""``lading conformance`` against upstream's nsqd, whose messages have no headers."""

from __future__ import annotations

from pathlib import Path

import pytest

from lading.conformance.run import Verdict, run_conformance
from tests.interop import go_programs


@pytest.mark.interop
def test_upstream_nsqd_has_no_form_for_headers(tmp_path: Path) -> None:
    try:
        with go_programs.running(tmp_path) as running:
            report = run_conformance(f"nsq://{running.nsqd_tcp}", random_messages=50)
    except go_programs.Unavailable as error:
        pytest.skip(str(error))
    assert {one.name for one in report.results if one.verdict is Verdict.KEPT} == {"no headers"}
    assert report.count(Verdict.NO_FORM) == 63 and not report.random_messages
