"""Dates, decimals, lists and constraints of a contract in tables: read by the formats' own readers."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lading import read_arrow
from lading.client.outgoing import complete
from lading.model.batch import HEADERS_TYPE
from lading.model.kinds import Kind
from lading.pipeline.quarantine import Quarantine
from lading.pipeline.settings import PipelineSettings
from lading.tables.formats.registry import FORMATS

from .conftest import Place
from .direct import Driver
from .flights import table

CONTRACT = """
[source]
from = "{url}"
topic = "{topic}"

[headers]
day = {{ type = "date", min = 2024-01-01 }}
price = {{ type = "decimal(10,2)", min = 0, max = "999.99" }}
via = "array<string>"
carrier = {{ type = "string", values = ["UA", "AA"] }}
tail = {{ type = "string", pattern = "N[0-9]+" }}

[quality]
max_failure_ratio = 1

[good]
to = "{form}:./good"

[[route]]
where = "any(via) = 'ORD' AND day < '2024-06-01'"
to = "{form}:./ord"
"""
MESSAGES: list[tuple[str, list[tuple[str, str]]]] = [
    ("good", [("day", "2024-05-01"), ("price", "12.5"), ("via", "DEN"), ("via", "LAX"), ("carrier", "UA")]),
    ("ord", [("day", "2024-05-01"), ("via", "ORD"), ("via", "LAX"), ("tail", "N14")]),
    ("bad_value day", [("day", "2024-02-30")]),
    ("bad_value price", [("price", "1.005")]),
    ("out_of_range day", [("day", "2023-12-31")]),
    ("out_of_range price", [("price", "1000")]),
    ("value_not_allowed carrier", [("carrier", "LH")]),
    ("pattern_mismatch tail", [("tail", "N14X")]),
]


@pytest.mark.parametrize("form", FORMATS)
def test_new_types_and_constraints(place: Place, form: str) -> None:
    rows = [
        [{"key": key, "kind": int(Kind.STRING), "value": value.encode()} for key, value in headers]
        for _, headers in MESSAGES
    ]
    topic = f"{place.topic}-types"
    place.transport.create_topic(topic, 1)
    count = len(MESSAGES)
    sent = complete(count, {"headers": pa.array(rows, HEADERS_TYPE), "payload": pa.array([b"x"] * count)})
    place.transport.send(topic, 0, sent)
    file = place.base / "types.toml"
    file.write_text(CONTRACT.format(url=place.url, topic=topic, form=form))
    counts = Driver(file).run()
    assert (counts["good"], counts["routed"], counts["quarantined"]) == (1, 1, 6)
    good: Any = table(place.base / "good")
    assert good.select(["offset", "day", "price", "via", "carrier", "tail"]).to_pylist() == [
        {"offset": 0, "day": date(2024, 5, 1), "price": Decimal("12.50"), "via": ["DEN", "LAX"], "carrier": "UA",
         "tail": None},
    ]  # fmt: skip
    assert good.schema.field("price").type == pa.decimal128(10, 2)
    assert table(place.base / "ord")["via"].to_pylist() == [["ORD", "LAX"]]
    quarantine = Quarantine(PipelineSettings.load(file))
    found = {row["message"].rpartition("/")[2]: f"{row['reason']} {row['header']}" for row in quarantine.rows()}
    assert found == {str(at): fate for at, (fate, _) in enumerate(MESSAGES) if " " in fate}
    details = {row["reason"]: row["detail"] for row in quarantine.rows(reasons=["out_of_range"], where="offset = 5")}
    assert details == {"out_of_range": "the header 'price' has a value that is not at least 0.00 and at most 999.99"}
    read = read_arrow(place.url, topic, "via array<string>, day date")
    assert read["via"].to_pylist()[:3] == [["DEN", "LAX"], ["ORD", "LAX"], None]
