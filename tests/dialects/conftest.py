"""Both halves of the dialects: every test that takes ``half`` runs on the kernels and on their twins."""

from __future__ import annotations

from typing import Any

import pytest

from lading.kernels import engine


@pytest.fixture(params=["kernel", "twin"])
def half(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make dialects work with the kernels, or with the twins, whatever the engine would choose."""
    half: str = request.param

    def select(home: str, twin: Any, size_bytes: int) -> Any:
        return engine.load(home) if half == "kernel" else twin

    def ready(home: str) -> Any:
        return engine.load(home) if half == "kernel" else None

    monkeypatch.setattr(engine, "select", select)
    monkeypatch.setattr(engine, "get_loaded", ready)
    return half
