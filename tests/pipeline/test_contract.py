"""A contract from messages: what is written can be read again and holds; what drifts is said."""

from __future__ import annotations

import tomllib
from typing import Any

from lading import Producer, u16
from lading.pipeline.contract import drift, headers_section, profile_topic
from lading.pipeline.settings import PipelineSettings

from .conftest import PARTITIONS, ROWS, Place
from .flights import fate

GOOD = '[good]\nto = "parquet:./t"\n[source]\nfrom = "./data"\ntopic = "x"\n'


def test_what_is_inferred_holds(place: Place) -> None:
    topic = f"{place.topic}.odd"
    with Producer(place.url) as producer:
        for number in range(40):
            headers: list[Any] = [("carrier", "UA"), ("delay", u16(number)), ("key", "k"), ('a "b"\n', b"\xff\x00")]
            producer.send(topic, b"x", headers=headers if number else [*headers[1:], ("via", None)])
    found = profile_topic(place.url, topic)
    text = headers_section(found.statistics, topic)
    assert "40 messages" in text.splitlines()[0]
    (carrier,) = [line for line in text.splitlines() if line.startswith("carrier")]
    assert carrier.startswith('carrier = "string"') and "97.5 %, string; UA" in carrier
    document = tomllib.loads(text)
    assert document["headers"] == {
        "carrier": "string",
        "delay": "int required",
        "header_key": {"type": "string", "from": "key", "required": True},
        'a "b"\n': "binary required",
        "via": "string",
    }
    settings = PipelineSettings({**tomllib.loads(GOOD), **document}, place.base, "x.toml")
    again = profile_topic(place.url, topic, contract=settings.contract)
    assert drift(again, settings.contract) == []


def test_drift_is_named(place: Place) -> None:
    declared = {"carrier": "string required", "delay": "int", "gone": "string"}
    settings = PipelineSettings({**tomllib.loads(GOOD), "headers": declared}, place.base, "x.toml")
    found = drift(profile_topic(place.url, place.topic, contract=settings.contract), settings.contract)
    missing, unreadable = (
        PARTITIONS * sum(row % every == rest for row in range(ROWS)) for every, rest in ((50, 1), (70, 2))
    )
    assert {(one.header, one.kind): one.messages for one in found} == {
        ("carrier", "missing"): missing,
        ("delay", "unreadable"): unreadable,
        ("gone", "never seen"): 0,
    }
    # texts that are no numbers fit a column of another type only
    assert {one.header: one.breaks for one in found} == {"carrier": False, "delay": True, "gone": False}
    (of_delay,) = [one for one in found if one.breaks]
    assert of_delay.table.startswith("breaks as string, which requires another table")
    assert fate(1) == "missing_header" and fate(2) == "bad_value"
    only = PipelineSettings({**tomllib.loads(GOOD), "headers": {"carrier": "string"}}, place.base, "x.toml")
    (new,) = drift(profile_topic(place.url, place.topic, contract=only.contract, limit=100), only.contract)
    assert (new.header, new.kind, new.messages) == ("delay", "undeclared", 100)
    assert new.table == "takes a new column string; older rows are null in it"
