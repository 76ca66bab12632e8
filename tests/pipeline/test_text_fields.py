"""A contract that declares key or payload as text: what is not UTF-8 goes to quarantine, and can be redriven."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lading import Producer, testing
from lading.model.errors import SettingError
from lading.pipeline.odcs import to_odcs
from lading.pipeline.quarantine import Quarantine
from lading.pipeline.settings import PipelineSettings

from .direct import Driver

PIPELINE = """
[pipeline]
id = "texts"
[source]
from = "{url}"
topic = "{topic}"
[headers]
delay = "int"
payload = "string"
key = "string"
[quality]
max_failure_ratio = 1.0
[good]
to = "parquet:./good"
{columns}
[quarantine]
to = "parquet:./bad"
"""


@pytest.mark.parametrize("columns", ["", 'columns = ["offset", "delay"]'])
def test_what_is_not_text_goes_to_quarantine(served: testing.BrokerProcess, tmp_path: Path, columns: str) -> None:
    """It is checked if the table has no such column, too, as headers are."""
    topic = f"texts.{len(columns)}"
    with Producer(served.url) as producer:
        for key, payload in [(b"a", b"one"), (b"\xff", b"two"), (None, b"\xff"), (None, b"")]:
            producer.send(topic, payload, key=key, partition=0, headers={"delay": "1"})
    file = tmp_path / "texts.toml"
    file.write_text(PIPELINE.format(url=served.url, topic=topic, columns=columns))
    counts = Driver(file).run()
    assert (counts["good"], counts["reason.bad_value.payload"], counts["reason.bad_value.key"]) == (2, 1, 1)
    (good,) = (tmp_path / "good").glob("*.parquet")
    if not columns:
        table = pq.read_table(good)
        assert table.column("payload").to_pylist() == ["one", ""]
        assert table.column("key").to_pylist() == ["a", None]
    (bad,) = (tmp_path / "bad").glob("*.parquet")
    assert pq.read_table(bad).column("payload").to_pylist() == [b"two", b"\xff"]
    settings = PipelineSettings.load(file)
    details = {row["header"]: row["detail"] for row in Quarantine(settings).rows(reasons=["bad_value"])}
    assert details["key"] == "the key is not UTF-8, and key is declared as string"
    assert Quarantine(settings).redrive().sent == 2
    properties = {one["name"]: one["logicalType"] for one in to_odcs(settings, "1.0.0")["schema"][0]["properties"]}
    assert properties == {"delay": "integer", "payload": "string", "key": "string"}


def test_other_types_of_a_field_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "texts.toml"
    text = PIPELINE.format(url="lading://127.0.0.1:1", topic="t", columns="")
    file.write_text(text.replace('payload = "string"', 'payload = "int"'))
    with pytest.raises(SettingError, match=r'headers.payload: .*for text write payload = "string", or name'):
        PipelineSettings.load(file)
