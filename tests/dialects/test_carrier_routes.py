"""Messages through the bytes of every Iggy route and back, by carrier where Iggy cannot hold them: equal."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from lading.dialects.carrier import carry, restore
from lading.dialects.iggy.classic import messages
from lading.dialects.iggy.classic.encode import encode_sent, encode_stored
from lading.dialects.iggy.http.messages import encode_polled, parse_send
from lading.dialects.registry import dialect, to_batch
from lading.model.batch import SCHEMA
from lading.model.kinds import KIND_BY_WORD
from lading.model.names import key_text
from lading.model.run import Run
from lading.model.scan_request import ScanRequest
from lading.model.state import STATE_BY_WORD
from tests.dialects.targets import TARGETS
from tests.dialects.test_carrier import Row, batch_of, random_row, rows_of

NOW_US = 1_700_000_000_000_000


def decoded(stored: bytes) -> pa.RecordBatch:
    run = messages.parse_polled_run(stored, 0)
    (batch,) = map(to_batch, dialect("iggy_classic").decode(run, ScanRequest(max_rows=1 << 20, max_bytes=1 << 30)))
    return batch


def as_sent(batch: pa.RecordBatch) -> bytes:
    """What the server stores of a send request."""
    sent = np.frombuffer(encode_sent(batch), np.uint8)
    stored = np.empty(messages.room(sent.size), np.uint8)
    state = messages.random_state()
    code, count, size_bytes = messages.restamp(sent, 0, sent.size, stored, 0, 5, NOW_US, state)
    assert (code, count) == (0, batch.num_rows)
    return stored[:size_bytes].tobytes()


def through_send(batch: pa.RecordBatch) -> pa.RecordBatch:
    return decoded(as_sent(carry(batch, TARGETS["iggy_sent"]).batch))


def through_poll(batch: pa.RecordBatch) -> pa.RecordBatch:
    return decoded(encode_stored(carry(batch, TARGETS["iggy"]).batch))


def through_http_poll(batch: pa.RecordBatch) -> pa.RecordBatch:
    documents = json.loads(encode_polled(carry(batch, TARGETS["iggy"]).batch))
    rows = [
        {
            **document,
            "state": int(STATE_BY_WORD[document["state"]]),
            "id": document["id"].to_bytes(16, "little") if document["id"] else None,
            "key": None,
            "payload": base64.b64decode(document["payload"]),
            "headers": [
                {
                    "key": key_text(key.encode()),
                    "kind": int(KIND_BY_WORD[header["kind"]]),
                    "value": base64.b64decode(header["value"]),
                }
                for key, header in (document["headers"] or {}).items()
            ],
        }
        for document in documents
    ]
    columns = [pa.array([row[name] for row in rows], SCHEMA.field(name).type) for name in SCHEMA.names]
    return restore(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))


def through_http_send(batch: pa.RecordBatch) -> pa.RecordBatch:
    polled = json.loads(encode_polled(carry(batch, TARGETS["iggy_sent"]).batch))
    document = {
        "partitioning": {"kind": "balanced", "value": ""},
        "messages": [{name: message[name] for name in ("id", "payload", "headers")} for message in polled],
    }
    return decoded(as_sent(parse_send(json.dumps(document).encode()).batch))


def through_nsq(batch: pa.RecordBatch) -> pa.RecordBatch:
    """As an NSQ client gets it and gives it to another server, whose ids are no loss."""
    stored = dialect("nsq").encode(carry(batch, TARGETS["nsq"]).batch)
    low, count = batch["offset"][0].as_py(), batch.num_rows
    run = Run(5, np.frombuffer(stored, np.uint8), np.array([[0, len(stored), low, count, low + count - 1, 0, 0, 0]]))
    (back,) = map(to_batch, dialect("nsq").decode(run, ScanRequest(max_rows=1 << 20, max_bytes=1 << 30)))
    return back


def through_kafka(batch: pa.RecordBatch) -> pa.RecordBatch:
    """As a Kafka client gets it."""
    stored = dialect("kafka").encode(carry(batch, TARGETS["kafka"]).batch)
    low, count = batch["offset"][0].as_py(), batch.num_rows
    run = Run(4, np.frombuffer(stored, np.uint8), np.array([[0, len(stored), low, count, low + count - 1, 0, 0, 0]]))
    (back,) = map(to_batch, dialect("kafka").decode(run, ScanRequest(max_rows=1 << 20, max_bytes=1 << 30)))
    return back


ROUTES: list[Callable[[pa.RecordBatch], pa.RecordBatch]] = [
    through_send,
    through_poll,
    through_http_poll,
    through_http_send,
    through_nsq,
]


@pytest.mark.turns(3)
@pytest.mark.parametrize("route", ROUTES)
def test_every_route_gives_back_what_went_in(route: Callable[[pa.RecordBatch], pa.RecordBatch], full: bool) -> None:
    rng, count = random.Random(20230822), 100_000 if full else 2_000
    for _ in range(0, count, 100):
        # an id that a server gave is no loss; 100 messages stay within the limits of one request
        rows: list[Row] = [(row[0] or b"\x01" * 16, *row[1:]) for row in (random_row(rng) for _ in range(100))]
        back = rows_of(route(batch_of(rows)))
        assert [row[:4] for row in back] == [row[:4] for row in rows]
        assert [row[4] for row in back] == [row[4] for row in rows]
    print(f"{count} messages {route.__name__.replace('_', ' ')} and back: all equal")


def test_two_hops_rebuild_as_one() -> None:
    rng = random.Random(1)
    rows: list[Row] = [(row[0] or b"\x01" * 16, *row[1:]) for row in (random_row(rng) for _ in range(100))]
    assert rows_of(through_poll(through_send(batch_of(rows)))) == rows


@pytest.mark.parametrize("half", ["kernel", "twin"], indirect=True)
def test_from_kafka_by_iggy_and_nsq_back_to_kafka(half: str, full: bool) -> None:
    rng, count = random.Random(2), 20_000 if full else 200
    for _ in range(0, count, 100):
        rows: list[Row] = [(b"\x01" * 16, *row[1:]) for row in (random_row(rng) for _ in range(100))]
        batch = through_kafka(batch_of(rows))
        for route in (through_poll, through_nsq, through_kafka):
            batch = route(batch)
        assert rows_of(batch) == rows


def test_a_message_without_id_gets_one_from_a_server_and_none_in_a_poll() -> None:
    batch = batch_of([(None, b"key", [], b"p", 5)])
    assert through_send(batch)["id"].null_count == 0
    assert through_http_poll(batch)["id"].null_count == 1
