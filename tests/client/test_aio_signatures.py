"""The clients for asyncio have the methods, arguments and defaults of the blocking ones, but for those named here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

import pytest

import lading
from lading import aio

SYNC_ONLY: Final = {
    ("Consumer", "prefetch"): "the half of poll that waits; poll of aio is both",
    ("Consumer", "take"): "the half of poll that does not wait",
    ("Producer", "describe_lost"): "asked by the exit of the process, where no loop runs",
    ("Producer", "flush_late"): "called by the thread that sends what waits",
    ("Producer", "forget_in_child"): "called in a forked child",
}
OTHER_ARGUMENTS: Final = {("Consumer", "close"): "the block of async with tells whether it failed"}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def arguments(method: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(method).parameters.values())


@pytest.mark.parametrize("name", aio.__all__)
def test_every_method_is_there(name: str) -> None:
    blocking, asynchronous = public(getattr(lading, name)), public(getattr(aio, name))
    assert asynchronous <= blocking
    assert blocking - asynchronous == {method for kind, method in SYNC_ONLY if kind == name}


@pytest.mark.parametrize("name", aio.__all__)
def test_arguments_and_results_are_the_same(name: str) -> None:
    blocking, asynchronous = getattr(lading, name), getattr(aio, name)
    for method in ["__init__", *sorted(public(asynchronous))]:
        one, other = getattr(blocking, method), getattr(asynchronous, method)
        if not callable(one):
            assert isinstance(other, property), method
            continue
        if (name, method) in OTHER_ARGUMENTS:
            assert arguments(one) != arguments(other)
            continue
        assert arguments(one) == arguments(other), method
        result = inspect.signature(one).return_annotation.replace("Iterator[", "AsyncIterator[")
        assert inspect.signature(other).return_annotation in (result, inspect.signature(one).return_annotation), method
        # a wrapped method is looked at for itself: what is awaited in one is awaited in the other
        is_waited = inspect.iscoroutinefunction(other) or inspect.isasyncgenfunction(other)
        assert is_waited or method == "__init__", method
