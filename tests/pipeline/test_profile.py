"""Profiles: the same for every way to read a topic, counted as one would by hand, in bounded memory."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lading import Producer, i16, testing
from lading.columns.looks import count_looks, look_of_bytes
from lading.model.batch import HEADERS_TYPE
from lading.model.errors import LocalError
from lading.model.kinds import Kind
from lading.payloads.avro_from_json import encode_json
from lading.pipeline.contract import drift, headers_section, profile_topic
from lading.pipeline.profile import INTERVALS_MAX, TopicProfile, read_profile
from lading.pipeline.profile_page import describe_looks, profile_page
from lading.pipeline.settings import PipelineSettings, load_contract
from lading.schemas.avro import parse_avro

COUNT = 120
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("look", "values"),
    [
        ("integer", ["0", "-17", "123456789012345678"]),
        ("digits", ["007", "12345678901234567890"]),
        ("decimal", ["1.5", "-0.25"]),
        ("boolean", ["true", "False"]),
        ("timestamp", ["2024-05-01T12:30:00Z", "2024-05-01 12:30", "2024-05-01T12:30:00.123+02:00"]),
        ("date", ["2024-05-01"]),
        ("uuid", ["123e4567-e89b-12d3-a456-426614174000"]),
        ("trace id", [TRACE, "4bf92f3577b34da6a3ce929d0e0e4736", "a3ce929d0e0e4736"]),
        ("json", ['{"a": 1}', "[1,\n2]"]),
        ("text", ["UA", "1,5", " 1", "+1", "4bf92"]),
        ("empty", [""]),
    ],
)
def test_looks_of_texts(look: str, values: list[str]) -> None:
    assert count_looks("h", Kind.RAW, pa.array([value.encode() for value in values])) == {look: len(values)}


def test_looks_of_bytes_and_kinds() -> None:
    guid = bytes.fromhex("123e4567e89b42d3a456426614174000")
    assert look_of_bytes("__value_schema_id", b"\0" + struct.pack(">i", 7)) == "schema id"
    assert look_of_bytes("x", b"\1" + guid) == "schema id"
    assert look_of_bytes("lag", struct.pack(">i", 5)) == look_of_bytes("lag", struct.pack(">q", -5)) == "big-endian int"
    assert look_of_bytes("x", guid) == "uuid"
    assert (look_of_bytes("trace_id", b"\xff" * 16), look_of_bytes("span", b"\x81" * 8)) == ("trace id", "trace id")
    assert look_of_bytes("x", b"\x81\x02\x03") == "binary"
    mixed = pa.array([struct.pack(">i", 5), b"text", b""])
    assert count_looks("x", Kind.RAW, mixed) == {"big-endian int": 1, "text": 1, "empty": 1}
    assert count_looks("x", Kind.UINT16, pa.array([b"\1\0"])) == {"integer": 1}
    # each as often as it is there; nulls look like nothing
    assert count_looks("x", Kind.UINT16, pa.array([b"\1\0", None, b"\1\0"])) == {"integer": 2}
    assert count_looks("x", Kind.RAW, pa.array([b"a", b"7", b"a", None, b"a", b"7"])) == {"text": 3, "integer": 2}
    assert count_looks("x", Kind.RAW, pa.array([b"\xff", b"a", b"\xff", None])) == {"binary": 2, "text": 1}
    assert count_looks("x", Kind.RAW, pa.array([None], pa.binary())) == {}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[testing.BrokerProcess, Path]]:
    directory = tmp_path_factory.mktemp("profile") / "data"
    with testing.broker(data_dir=directory) as running:
        with Producer(running.url) as producer:
            for number in range(COUNT):
                headers: list[tuple[str, Any]] = [
                    ("seat", str(number)),
                    ("day", b"2024-05-01"),
                    ("lag", struct.pack(">i", number)),
                ]
                headers += [("via", "ORD"), ("via", "D" * number)] if number % 2 else []
                headers += [("trace", None)] if number % 10 == 0 else []
                producer.send(
                    "flights",
                    b"x" * 10,
                    key=b"k",
                    headers=headers,
                    timestamp=1_700_000_000_000_000 + number * 3_600_000_000,
                )
        yield running, directory


def test_a_profile_is_the_same_however_the_topic_is_read(broker: tuple[testing.BrokerProcess, Path]) -> None:
    running, directory = broker
    found = read_profile(running.url, "flights")
    rows = {row["key"]: row for row in found.rows()}
    value_bytes = sum(3 + number for number in range(COUNT) if number % 2)
    assert rows["via"]["bytes"] == value_bytes + 3 * COUNT
    assert (rows["via"]["share"], rows["via"]["duplicates"]) == (50.0, COUNT // 2)
    assert (rows["seat"]["looks"], rows["day"]["looks"], rows["lag"]["looks"]) == (
        {"integer": 1.0}, {"date": 1.0}, {"big-endian int": 1.0},
    )  # fmt: skip
    assert (rows["trace"]["nulls"], rows["trace"]["looks"]) == (COUNT // 10, {})
    assert found.header_bytes == sum(row["bytes"] for row in rows.values())
    assert rows["via"]["bytes_share"] == pytest.approx(100 * rows["via"]["bytes"] / (found.header_bytes + 11 * COUNT))
    last = found.heaviest_first()[0]
    # seat119, day2024-05-01, lag and four bytes, viaORD, via and 119 times D
    assert (last.offset, last.header_bytes, last.headers) == (COUNT - 1, 7 + 13 + 7 + 6 + 122, 5)
    assert [one.offset for one in found.heaviest_first()] == list(range(COUNT - 1, COUNT - 21, -2))
    others = {
        "kafka": f"kafka://{running.endpoints['kafka']}", "iggy": f"iggy://{running.endpoints['iggy_tcp']}",
        "directory": str(directory),
    }  # fmt: skip
    for name, url in others.items():
        theirs = {row["key"]: row for row in read_profile(url, "flights").rows()}
        for column in ("messages", "duplicates", "nulls", "bytes", "looks", "change"):
            assert {key: row[column] for key, row in theirs.items()} == {
                key: row[column] for key, row in rows.items()
            }, (name, column)
    assert read_profile(running.url, "flights", limit=7).statistics.messages == 7
    assert read_profile(running.url, "flights", where="offset < 5").statistics.messages == 5


@pytest.mark.parametrize("scheme", ["lading", "kafka"])
def test_looks_are_shares_of_messages(broker: tuple[testing.BrokerProcess, Path], scheme: str) -> None:
    """Few distinct values in most messages, and many of them in few: 300 messages, the shares counted by hand."""
    running, topic = broker[0], f"looks-{scheme}"
    url = running.url if scheme == "lading" else f"kafka://{running.endpoints['kafka']}"
    with Producer(url) as producer:
        for number in range(300):
            headers: dict[str, Any] = {
                # 150 of 300 are one text, and 150 are 150 integers
                "mixed": "abc" if number % 2 else b"%d" % number,
                # 1 of 300 is a date
                "day": "2024-05-01" if number == 77 else "1",
                # 100 of 300
                "carrier": b"\xff" if number % 3 == 0 else "UA",
                # 60 nulls; of 240 values are 60 empty
                "none": None if number % 5 == 0 else b"" if number % 5 == 1 else "true",
            }
            producer.send(topic, b"x", headers=headers)
    found = read_profile(url, topic)
    rows = {row["key"]: row["looks"] for row in found.rows()}
    assert rows == {
        "mixed": {"text": 0.5, "integer": 0.5}, "day": {"integer": 299 / 300, "date": 1 / 300},
        "carrier": {"text": 200 / 300, "binary": 100 / 300}, "none": {"boolean": 0.75, "empty": 0.25},
    }  # fmt: skip
    assert describe_looks(rows["day"]) == "integer > 99 %, date < 1 %"
    assert describe_looks(rows["carrier"]) == "text 67 %, binary 33 %"
    page = profile_page(found.document(topic, url), "")
    assert "integer &gt; 99 %, date &lt; 1 %" in page and "text 67 %, binary 33 %" in page


def test_kinds_of_one_header_share_its_looks(broker: tuple[testing.BrokerProcess, Path]) -> None:
    with Producer(broker[0].url) as producer:
        for number in range(200):
            producer.send("kinds", b"x", headers={"delay": "abc" if number % 50 == 0 else i16(number % 3)})
            # all in one batch of the reader, or each in one of its own: the same
            if number % 7 == 0:
                producer.flush()
    (row,) = read_profile(broker[0].url, "kinds").rows()
    # 4 of 200 are "abc"
    assert (row["looks"], row["proposed"]["type"]) == ({"integer": 0.98, "text": 0.02}, row["type"])


def test_time_is_cut_into_few_intervals(broker: tuple[testing.BrokerProcess, Path]) -> None:
    found = read_profile(broker[0].url, "flights")
    assert 1 < len(found.intervals) <= INTERVALS_MAX
    assert sum(found.intervals.values()) == COUNT
    assert sum(found.by_interval["via"].values()) == COUNT // 2
    # one far away makes intervals longer, and loses none
    early = pa.record_batch({
        "partition": pa.array([0], pa.int32()), "offset": [0],
        "timestamp": pa.array([0], pa.timestamp("us", tz="UTC")),
        "key": pa.array([None], pa.binary()), "payload": pa.array([b""]),
        "headers": pa.array([[]], HEADERS_TYPE),
    })  # fmt: skip
    found.add(early)
    assert len(found.intervals) <= INTERVALS_MAX
    assert sum(found.intervals.values()) == COUNT + 1


def test_the_proposed_contract_holds(broker: tuple[testing.BrokerProcess, Path], tmp_path: Path) -> None:
    found = read_profile(broker[0].url, "flights")
    document = found.document("flights", broker[0].url)
    section = headers_section(found.statistics, "flights", document["headers"])
    for line in (
        'seat = "bigint required"',
        'day = "date required"',
        'lag = "int be required"',
        'via = "array<string>"',
    ):
        assert line in section
    page = profile_page(document, section)
    assert "<svg" in page and "heaviest" in page.lower() and "array&lt;string&gt;" in page
    file = tmp_path / "flights.toml"
    source = f'[source]\nfrom = "{broker[0].url}"\ntopic = "flights"\n[good]\nto = "parquet:./good"\n'
    file.write_text(source + section)
    contract = PipelineSettings.load(file).contract
    assert drift(profile_topic(broker[0].url, "flights", contract=contract), contract) == []


def test_nothing_to_profile(broker: tuple[testing.BrokerProcess, Path]) -> None:
    running = broker[0]
    with pytest.raises(LocalError, match="holds no messages that match offset > 1000, so there is nothing to profile"):
        read_profile(running.url, "flights", where="offset > 1000")
    queue = f"nsq://{running.endpoints['nsqlookupd_http']}"
    with pytest.raises(LocalError, match="--group NAME"):
        read_profile(queue, "flights")
    assert TopicProfile().rows() == []


def test_members_of_payloads_are_profiled_and_the_proposed_contract_holds(
    broker: tuple[testing.BrokerProcess, Path], tmp_path: Path
) -> None:
    url, topic = broker[0].url, "orders"
    with Producer(url) as producer:
        for number in range(50):
            order = {"id": f"A-{number}", "order": {"amount": number * 1.25, "tags": ["new"]}, "offset": number}
            producer.send(topic, json.dumps(order).encode(), headers={"tenant": "acme", "id": "7", "payload.x": "1"})
        producer.send(topic, b'{"id": ', headers={"tenant": "acme", "id": "7", "payload.x": "1"})
    found = read_profile(url, topic)
    document = found.document(topic, url)
    assert (document["payload"]["objects"], document["payload"]["malformed"]) == (50, 1)
    for section in (
        headers_section(found.statistics, topic, document["headers"], found.members),
        headers_section(found.statistics, topic, members=profile_topic(url, topic).members),
    ):
        assert '[payload]\nformat = "json"\n\n[headers]' in section
        for line in (
            'payload_id = "string required from payload.id"',
            'amount = "decimal(10,2) required from payload.order.amount"',
            'tags = "array<string> required from payload.order.tags"',
            'payload_offset = "bigint required from payload.offset"',
        ):
            assert line in section
        file = tmp_path / "orders.toml"
        file.write_text(f'[source]\nfrom = "{url}"\ntopic = "{topic}"\n[good]\nto = "parquet:./good"\n{section}')
        contract = PipelineSettings.load(file).contract
        (malformed,) = drift(profile_topic(url, topic, contract=contract), contract)
        assert (malformed.header, malformed.kind, malformed.messages) == ("payload", "payload_malformed", 1)
    assert "payload.order.amount" in profile_page(document, "")


def test_drift_of_members(broker: tuple[testing.BrokerProcess, Path], tmp_path: Path) -> None:
    url, topic = broker[0].url, "drifting"
    with Producer(url) as producer:
        for number in range(10):
            order = {
                "order": None if number == 3 else number,
                "phase": "new" if number % 2 else "old",
                "more": {"x": "y"},
            }
            if number == 4:
                del order["order"]
            producer.send(topic, json.dumps(order).encode())
        producer.send(topic, None)
    file = tmp_path / "drifting.toml"
    file.write_text(
        '[payload]\nformat = "json"\n[headers]\norder = "array<string> required from payload"\n'
        'gone = "int from payload.a.b"\n'
        'phase = { type = "string", from = "payload.phase", values = ["new"] }\n'
    )
    contract = load_contract(file)
    found = drift(profile_topic(url, topic, contract=contract), contract)
    assert [(one.header, one.kind, one.messages) for one in found] == [
        ("payload.more.x", "undeclared", 10), ("payload.order", "unreadable", 8),
        ("payload.phase", "value_not_allowed", 5),
        ("payload.order", "missing", 1), ("payload.order", "null", 1), ("payload.a.b", "never seen", 0),
    ]  # fmt: skip
    assert found[1].breaks and found[1].table.startswith("breaks as bigint")


def test_drift_of_avro_payloads(broker: tuple[testing.BrokerProcess, Path], tmp_path: Path) -> None:
    schema = (
        '{"type": "record", "name": "o", "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": "string"}]}'
    )
    (tmp_path / "o.avsc").write_text(schema)
    with Producer(broker[0].url) as producer:
        for number in range(5):
            producer.send("avro", encode_json(parse_avro(schema), b'{"n": %d, "s": "x"}' % number))
        producer.send("avro", b"\x02")
    file = tmp_path / "avro.toml"
    source = f'[source]\nfrom = "{broker[0].url}"\ntopic = "avro"\n[good]\nto = "parquet:./good"\n'
    section = '[payload]\nformat = "avro"\nschema = "o.avsc"\n[headers]\nn = "bigint required from payload"\n'
    file.write_text(source + section)
    contract = load_contract(file)
    (malformed,) = drift(profile_topic(broker[0].url, "avro", contract=contract), contract)
    assert (malformed.header, malformed.kind, malformed.messages) == ("payload", "payload_malformed", 1)
    assert "is not valid avro in 16.7 % of the messages: the first, in partition 0 at offset 5, " in malformed.sentence
    registry = f'registry = "http://{broker[0].endpoints["schema_registry"]}"'
    file.write_text(source + section.replace('"avro"', '"schema"').replace('schema = "o.avsc"', registry))
    contract = load_contract(file)
    malformed = drift(profile_topic(broker[0].url, "avro", contract=contract), contract)[0]
    assert malformed.sentence.startswith("is not a valid payload by its schema in 100.0 % of the messages: ")
