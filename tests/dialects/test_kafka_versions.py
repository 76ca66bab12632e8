"""Each module of handlers begins with its APIs, the versions that are served, and what each of them changed."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from lading.dialects.kafka.versions import API_VERSIONS, FETCH, PRODUCE, PRODUCE_LOW, SERVED
from lading.endpoints.kafka.registry import HANDLER_MODULES

ROWS = re.compile(r"(\w+(?:(?:, | and )\w+)*) (\d+)(?:-(\d+))?(?=[.:, ])")
LOW = {PRODUCE: PRODUCE_LOW}
"""The lowest version that is taken, if it is not the lowest that is listed."""


def list_versions() -> dict[str, tuple[int, int]]:
    """Return the versions of each API as the docstrings have them."""
    rooms = {handlers.__module__ for handlers in HANDLER_MODULES}
    rooms |= {f"lading.endpoints.kafka.{name}" for name in ("api_versions", "produce", "fetch")}
    names = {api.name for api in SERVED.values()}
    found: dict[str, tuple[int, int]] = {}
    for room in rooms:
        for line in re.findall(r"^\* ((?:.|\n  )*)", import_module(room).__doc__ or "", re.MULTILINE):
            for apis, low, high in ROWS.findall(line):
                for name in set(re.split(r", | and ", apis)) & names:
                    found.setdefault(name, (int(low), int(high or low)))
    return found


@pytest.mark.parametrize("key", SERVED)
def test_a_module_of_handlers_names_the_versions_that_are_served(key: int) -> None:
    api = SERVED[key]
    assert list_versions()[api.name] == (LOW.get(key, api.low), api.high)


def test_no_version_is_named_of_an_api_that_is_not_served() -> None:
    assert list_versions().keys() == {api.name for api in SERVED.values()}
    assert {API_VERSIONS, FETCH, PRODUCE} <= SERVED.keys()
