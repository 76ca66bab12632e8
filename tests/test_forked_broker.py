"""Brokers of tests stay forks: a variable that a test leaves changed is reported with its name."""

from __future__ import annotations

import pytest

from tests import forked_broker


def test_a_variable_that_is_left_changed_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as changed:
        changed.setenv("PYTHONPATH", "elsewhere")
        changed.setenv("LADING_TOKEN", "read by no import")
        with pytest.raises(AssertionError, match=r"changed: PYTHONPATH; restore"):
            forked_broker.require_same_environment()
        forked_broker.require_same_environment()
    with pytest.raises(AssertionError, match=r"changed: PYTHONPATH; restore"):
        forked_broker.require_same_environment()
