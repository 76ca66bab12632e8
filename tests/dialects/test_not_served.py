"""The pages of data that say what is not served: complete for Kafka, and without what is served."""

from __future__ import annotations

from importlib import import_module
from inspect import isclass
from typing import Any

from lading.dialects.iggy.not_served import NOT_SERVED as IGGY
from lading.dialects.kafka import later_messages
from lading.dialects.kafka.not_served import NEWER, NOT_SERVED
from lading.dialects.kafka.versions import SERVED
from lading.dialects.nsq.not_served import NOT_SERVED as NSQ

KEYS_END = 93
"""One above the last API key of Apache Kafka 4.3, DeleteShareGroupOffsets."""


def list_library_versions() -> dict[int, tuple[str, int]]:
    """Return the name and highest version of each API that kafka-python has messages of, by key."""
    found: dict[int, tuple[str, int]] = {}
    for name in later_messages.NAMES:
        later = getattr(later_messages, f"{name}Request")
        found[later.API_KEY] = (name, later.max_version)
    modules = {api.module for api in SERVED.values() if api.module} - {later_messages.__name__}
    for module in modules | {"producer.produce", "consumer.fetch"}:
        for name, kind in vars(import_module(f"kafka.protocol.{module}")).items():
            message: Any = kind
            if name.endswith("Request") and isclass(kind) and getattr(message, "API_KEY", None) is not None:
                found[message.API_KEY] = (name.removesuffix("Request"), message.max_version)
    return found


def test_each_api_of_kafka_is_served_or_says_why_not() -> None:
    keys = [key for apis, _ in NOT_SERVED for key in apis]
    assert sorted([*keys, *SERVED]) == list(range(KEYS_END))


def test_versions_that_are_not_served_are_those_of_another_implementation() -> None:
    library = list_library_versions()
    assert library.keys() >= SERVED.keys()
    newer = {
        key: (api.high + 1, library[key][1]) for key, api in SERVED.items() if library[key][1] > api.high
    }  # fmt: skip
    assert {key: (row.first, row.last) for key, row in NEWER.items()} == newer
    named = {key: name for apis, _ in NOT_SERVED for key, name in apis.items() if key in library}
    assert named == {key: library[key][0] for key in named}


def test_each_row_has_a_reason() -> None:
    rows = [*(row for _, row in NOT_SERVED), *IGGY, *NSQ]
    assert all(row.subject and row.reason for row in rows)
    assert len({row.subject for row in rows}) == len(rows)
