"""Ready-made contracts: CloudEvents by the words of the specification, and what is damaged in one; trace contexts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lading.client.outgoing import complete
from lading.columns.constraints import ValueConstraint
from lading.model.batch import HEADERS_TYPE
from lading.model.errors import SettingError
from lading.model.kinds import Kind
from lading.pipeline.quarantine import Quarantine
from lading.pipeline.ready_contracts import CONTRACTS
from lading.pipeline.settings import PipelineSettings, load_contract

from .conftest import Place
from .direct import Driver
from .flights import table

STRUCTURED = b"application/cloudevents+json; charset=UTF-8"
EVENT = {"specversion": "1.0", "type": "t", "source": "/s", "id": "1", "data": {"id": "not this one"}}
BINARY: dict[str, bytes | None] = {"ce_specversion": b"1.0", "ce_type": b"t", "ce_source": b"/s", "ce_id": b"1"}
MESSAGES: list[tuple[dict[str, bytes | None], bytes | None]] = [
    # the data of an event in binary mode may be anything
    (BINARY | {"content-type": b"image/png"}, b"\x89PNG"),
    (BINARY, b'{"id": "not this one"}'),
    ({"content-type": STRUCTURED}, json.dumps(EVENT).encode()),
    ({"Content-Type": STRUCTURED}, json.dumps(EVENT).encode()),
    ({"content-type": b"APPLICATION/CloudEvents+JSON"}, json.dumps(EVENT | {"datacontenttype": "a/b"}).encode()),
    # a header of the binary mode says nothing of an event in structured mode
    ({"content-type": STRUCTURED, "ce_subject": b"x"}, json.dumps(EVENT | {"id": None}).encode()),
    ({"content-type": STRUCTURED}, b'{"specversion": "1.0", '),
    ({"content-type": STRUCTURED}, None),
    ({"content-type": STRUCTURED}, json.dumps(EVENT | {"time": "yesterday"}).encode()),
    (BINARY | {"traceparent": b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": b"a=1"}, b""),
    (BINARY | {"traceparent": b"4bf92f3577b34da6"}, b""),
]


def test_events_of_both_modes_fill_the_same_columns(place: Place) -> None:
    topic = f"{place.topic}-events"
    place.transport.create_topic(topic, 1)
    rows = [
        [{"key": key, "kind": int(Kind.RAW), "value": value} for key, value in headers.items()]
        for headers, _ in MESSAGES
    ]
    payloads = pa.array([payload for _, payload in MESSAGES], pa.binary())
    place.transport.send(topic, 0, complete(len(rows), {"headers": pa.array(rows, HEADERS_TYPE), "payload": payloads}))
    file = place.base / "events.toml"
    file.write_text(
        f'include = ["cloudevents", "opentelemetry"]\n[source]\nfrom = "{place.url}"\ntopic = "{topic}"\n'
        '[headers]\nce_type = { type = "string", required = true, values = ["t"] }\n[quality]\nmax_failure_ratio = 1\n'
        '[[route]]\nname = "typed"\nwhere = "ce_id = \'1\' AND ce_datacontenttype = \'a/b\'"\nto = "parquet:./typed"\n'
        '[good]\nto = "parquet:./good"\n'
    )
    Driver(file).run()
    good: Any = table(place.base / "good")
    assert good.column("offset").to_pylist() == [0, 1, 2, 9]
    names = ("ce_specversion", "ce_id", "ce_source", "ce_type", "ce_subject", "ce_time", "ce_dataschema")
    assert {tuple(row[name] for name in names) for row in good.to_pylist()} == {
        ("1.0", "1", "/s", "t", None, None, None)
    }
    assert good.column("ce_datacontenttype").to_pylist() == ["image/png", None, None, None]
    assert [row["ce_datacontenttype"] for row in table(place.base / "typed").to_pylist()] == ["a/b"]
    found = {int(row["message"].rpartition("/")[2]): (row["reason"], row["header"]) for row in
             Quarantine(PipelineSettings.load(file)).rows()}  # fmt: skip
    assert found == {
        3: ("missing_header", "ce_specversion"), 5: ("null_header", "ce_id"), 6: ("missing_header", "ce_specversion"),
        7: ("missing_header", "ce_specversion"), 8: ("bad_value", "ce_time"), 10: ("pattern_mismatch", "traceparent"),
    }  # fmt: skip


TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{'0' * 31}1-{'0' * 15}1-00", True),
        (f"00-{'0' * 16}{'f' * 16}-{SPAN}-ff", True),
        (f"00-{TRACE}-{SPAN}-01-more", False),
        (f"01-{TRACE}-{SPAN}-01", True),
        (f"fe-{TRACE}-{SPAN}-01-more", True),
        (f"fe-{TRACE}-{SPAN}-01more", False),
        (f"ff-{TRACE}-{SPAN}-01", False),
        (f"00-{'0' * 32}-{SPAN}-01", False),
        (f"cc-{TRACE}-{'0' * 16}-01", False),
        (f"00-{TRACE.upper()}-{SPAN}-01", False),
        (f"00-{TRACE[1:]}-{SPAN}-01", False),
    ],
)
def test_a_traceparent_is_one_by_w3cs_trace_context(text: str, is_valid: bool) -> None:
    """https://www.w3.org/TR/trace-context/#traceparent-header-field-values, and the cases of its own test suite."""
    pattern = CONTRACTS["opentelemetry"]["traceparent"]["pattern"]
    constraint = ValueConstraint.of(pa.string(), pattern=pattern)
    (broken,) = constraint.find_breaches(pa.array([text]))
    assert (broken is None) == is_valid
    assert len(constraint.rules[0][1]) < 120, "errors name what was asked, in one line"


def test_a_contract_that_does_not_exist_is_refused(place: Place) -> None:
    file = place.base / "wrong.toml"
    file.write_text(
        f'include = "cloudevent"\n[source]\nfrom = "{place.url}"\ntopic = "t"\n[good]\nto = "parquet:./good"\n'
    )
    with pytest.raises(
        SettingError, match=r"include 'cloudevent' does not exist \(did you mean 'cloudevents'\?\); there"
    ):
        PipelineSettings.load(file)


def test_a_contract_that_only_includes_others(tmp_path: Path) -> None:
    file = tmp_path / "contract.toml"
    file.write_text('include = "cloudevents"\n')
    assert {column.name for column in load_contract(file).headers} >= {"ce_id", "ce_source"}
    for wrong in ("5", "[5]", '[["cloudevents"]]', "{ a = 1 }"):
        file.write_text(f"include = {wrong}\n[headers]\n")
        with pytest.raises(SettingError, match="include takes the name of a contract, or a list of names; correct it"):
            load_contract(file)
