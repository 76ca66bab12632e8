"""Both halves of the chunk code: every test that takes ``half`` runs on the kernels and on their twin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lading.chunk import envelope, fallback
from lading.kernels import engine


@pytest.fixture(params=["kernel", "twin"])
def half(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make chunk work with the kernels, or with the twin, whatever the engine would choose; gives that module."""
    module = engine.load(envelope.KERNEL_MODULE) if request.param == "kernel" else fallback
    monkeypatch.setattr(engine, "select", lambda home, twin, size_bytes: module)
    monkeypatch.setattr(engine, "get_loaded", lambda home: module)
    return module


@pytest.fixture(scope="session")
def vectors() -> Any:
    return json.loads((Path(__file__).parents[1] / "vectors" / "chunk.json").read_text())
