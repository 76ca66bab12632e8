"""Fixtures every test room shares."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def full() -> bool:
    """Whether long suites run whole (``make test-full``) instead of as seeded samples."""
    return os.environ.get("LADING_TEST_FULL") == "1"
