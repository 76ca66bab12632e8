"""CloudEvents of the Python SDK, unmodified, in both modes: the ready-made contract gives both the same columns."""

from __future__ import annotations

from base64 import b64decode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lading import Producer, testing

from ..pipeline.direct import Driver
from ..pipeline.flights import table
from . import wheels

VERSION = "2.2.0"
FIRST = {
    "ce_specversion": "1.0",
    "ce_id": "A-1",
    "ce_source": "/orders/é",
    "ce_type": "order.created",
    "ce_subject": "acme",
    "ce_time": datetime(2026, 1, 31, 12, 30, 0, 250_000, UTC),
    "ce_dataschema": "https://schemas.example/order",
    "ce_datacontenttype": "application/json",
}


def test_events_of_the_sdk_in_both_modes(tmp_path: Path) -> None:
    try:
        # no such extra: with any, what the package needs is installed as well
        python = wheels.install("cloudevents", VERSION, "3.11", extras="kafka")
    except wheels.Unavailable as error:
        pytest.skip(str(error))
    messages = wheels.run(python, Path(__file__).with_name("cloudevents_python.py"))
    with testing.broker() as broker:
        with Producer(f"kafka://{broker.endpoints['kafka']}") as producer:
            for message in messages:
                headers = [(key, b64decode(value)) for key, value in message["headers"].items()]
                producer.send("events", b64decode(message["value"] or "") or None, headers=headers)
        file = tmp_path / "events.toml"
        file.write_text(
            f'include = "cloudevents"\n[source]\nfrom = "{broker.url}"\ntopic = "events"\n'
            '[good]\nto = "parquet:./good"\n'
        )
        counts = Driver(file).run()
    assert (counts["good"], counts["quarantined"]) == (4, 0)
    rows: list[dict[str, Any]] = table(tmp_path / "good").select(list(FIRST)).to_pylist()
    assert rows[:2] == [FIRST, FIRST]
    second = {"ce_specversion": "1.0", "ce_id": "A-2", "ce_source": "/orders", "ce_type": "order.paid"}
    for row in rows[2:]:
        assert row.pop("ce_time") is not None
        assert row == {name: second.get(name) for name in FIRST if name != "ce_time"}
