"""A message is judged the same alone and among thousands, where its columns are dictionaries and kernels work."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lading.columns.assemble import to_decoded
from lading.model.batch import SCHEMA
from lading.model.kinds import Kind
from lading.pipeline.classification import classify_messages
from lading.pipeline.plan import Plan
from lading.pipeline.settings import PipelineSettings

ROWS = 4000
PLACE: dict[str, str | int] = {"stream": "default", "topic": "flights", "partition": 3}
VALUES: dict[str, Sequence[tuple[int, bytes | None]]] = {
    "carrier": [(Kind.RAW, b"UA"), (Kind.STRING, b"LH"), (Kind.RAW, b""), (Kind.RAW, b"\xff"), (Kind.STRING, None)],
    "delay": [(Kind.RAW, struct.pack(">i", number)) for number in (-1, 5, 901, 2**31 - 1)]
    + [(Kind.INT64, struct.pack("<q", 950)), (Kind.STRING, b"77"), (Kind.RAW, b"x"), (Kind.RAW, None)],
    "trace": [(Kind.RAW, bytes([number]) * 16) for number in range(40)] + [(Kind.RAW, None)],
    "gate": [(Kind.STRING, b"A%d" % number) for number in range(30)]
    + [(Kind.INT32, struct.pack("<i", 12)), (Kind.RAW, b"\xfe")],
}
ROUTES = {
    "string": [
        "delay > 900",
        "carrier = 'LH' AND delay IS NOT NULL",
        "gate LIKE 'A1%'",
        "present(trace) AND trace IS NULL",
        "trace IS NULL",
        "gate = '12'",
    ],
    "int": ["delay < 0", "any(delay) = 901", "gate IS NULL AND carrier = ''", "trace IS NULL", "gate = 12"],
}
"""By the type of the gate."""
_NEVER_OF_NUMBERS = {"reason.pattern_mismatch.gate", "reason.value_not_allowed.gate"}


def plan(tmp_path: Path, gate: str) -> Plan:
    document: dict[str, Any] = {
        "source": {"from": "./data", "topic": "flights"},
        "headers": {
            "carrier": "string required", "delay": {"type": "int", "encoding": "be"}, "trace": "binary", "gate": gate,
            "late": {"type": "int", "encoding": "be", "from": "delay", "max": 10_000},
            "where": {"type": "string", "from": "gate", "pattern": "A1?[0-9]|12"},
            "name": {"type": "string", "from": "gate", "values": ["12", *(f"A{number}" for number in range(15))]},
            "gates": {"type": "array<string>", "from": "gate"},
        },
        "good": {"to": "parquet:./good"},
        "route": [{"where": where, "to": f"parquet:./route{at}"} for at, where in enumerate(ROUTES[gate])],
    }  # fmt: skip
    return Plan.of(PipelineSettings(document, tmp_path, "flights.toml"))


def messages(seed: int) -> pa.RecordBatch:
    """Headers are absent, doubled, null, of other kinds and unreadable; some payloads are not what was sent."""
    chance = random.Random(seed)
    rows = []
    for offset in range(ROWS):
        headers = [
            {"key": key, "kind": int(kind), "value": value}
            for key, pool in VALUES.items()
            for _ in range(chance.choice((0, 1, 1, 1, 1, 1, 2)))
            for kind, value in [chance.choice(pool)]
        ]
        payload = b"%d" % chance.randrange(99)
        told = chance.choice((None, zlib.crc32(payload), zlib.crc32(payload), 7 if chance.random() < 0.1 else None))
        rows.append(
            {
                "offset": offset,
                "state": 1,
                "timestamp": offset,
                "checksum": told,
                "headers": headers,
                "payload": payload,
            }
        )
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


@pytest.mark.parametrize("gate", ["string", "int"])
def test_among_many_as_alone(tmp_path: Path, gate: str) -> None:
    made = plan(tmp_path, gate)
    batch = messages(len(gate))
    together = classify_messages(made, to_decoded(batch, made.keys), PLACE)
    types = {name: together.batch.column(name).type for name in together.batch.schema.names}
    assert pa.types.is_dictionary(types["carrier"]) and pa.types.is_dictionary(types["topic"])
    seen: set[tuple[int, int]] = set()
    chance = random.Random(1)
    at = 0
    while at < ROWS:
        size = chance.choice((1, 2, 60, 200))
        some = classify_messages(made, to_decoded(batch.slice(at, size), made.keys), PLACE)
        for row in range(some.batch.num_rows):
            verdict = int(some.failure[row]), int(some.destination[row])
            assert verdict == (together.failure[at + row], together.destination[at + row])
            seen.add(verdict)
        assert some.batch.to_pylist() == together.batch.slice(at, size).to_pylist()
        at += size
    # every failure there can be, every route and good were among them: any bytes are binary
    told = {made.failures[failure].counter for failure, _ in seen if failure >= 0}
    never = {"reason.bad_value.trace"} | (_NEVER_OF_NUMBERS if gate == "int" else set())
    assert {one.counter for one in made.failures} - told == never
    assert {destination for _, destination in seen} == {-1, *range(len(made.destinations))}
