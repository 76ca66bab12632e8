"""Both halves of the walkers: every test that takes ``half`` runs on the kernels and on their twin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lading.columns import typed
from lading.kernels import engine
from lading.payloads import avro_values, protobuf_values, walk


@pytest.fixture(params=["kernel", "twin"])
def half(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Make payloads and columns work with the kernels, or with the twin, whatever the engine would choose."""
    if request.param == "kernel":
        engine.load(typed.KERNEL_MODULE)
        engine.load(walk.KERNEL_MODULE)
        engine.load(avro_values.KERNEL_MODULE)
        engine.load(protobuf_values.KERNEL_MODULE)
    else:
        monkeypatch.setattr(engine, "select", _twin)
    yield request.param


def _twin(home: str, twin: Any, size_bytes: int) -> Any:
    return twin
