"""Input guided by coverage (``guided_fuzz``): what it begins with, and where atheris is installed, a sample of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.endpoints.guided_fuzz import run_listener
from tests.endpoints.test_listeners_fuzz import LISTENERS

SAMPLE, FULL = 300, 60_000
"""Inputs a listener; with LADING_TEST_FULL=1 they are a million in all."""


@pytest.mark.timeout(300)
@pytest.mark.turns(2, part=0)
def test_no_way_to_leave_raises_into_the_loop_or_the_log() -> None:
    """A client that was gone before its answer left a stack in the log: the end was told to a socket without a peer."""
    command = [sys.executable, "-m", "tests.endpoints.guided_fuzz", "--seeds"]
    met = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert met.returncode == 0, met.stderr[-3_000:]


@pytest.mark.timeout(36_000)
@pytest.mark.parametrize("listener", LISTENERS)
def test_no_input_that_reaches_new_code_raises(
    listener: str, tmp_path: Path, full: bool, record_property: Callable[[str, object], None]
) -> None:
    if find_spec("atheris") is None:
        pytest.skip("atheris is not installed (pip install atheris)")
    if not full and listener != "nsqd_tcp":
        pytest.skip("a broker a listener, with all of it instrumented: with LADING_TEST_FULL=1")
    found = run_listener(listener, FULL if full else SAMPLE, tmp_path / "corpus")
    record_property("input guided by coverage", found)
    assert found["inputs"] >= (FULL if full else SAMPLE)
