"""One process and one directory for all that starts Spark here."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Iterator[ProcessPoolExecutor]:
    """One process with one Spark session for all pages that use Spark."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of the pages that start Spark."""
    return tmp_path_factory.mktemp("pages")
