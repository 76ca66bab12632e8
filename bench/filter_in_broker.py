"""What a selective filter saves when the broker evaluates it instead of the client."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa

from bench.measure import median
from lading import testing
from lading.client.bulk import write_arrow
from lading.model.scan_request import ScanRequest
from lading.transports.lading.transport import LadingTransport
from lading.transports.open import open_transport

QUESTION = "Filter in the broker / in the client, 1 % of the messages match: bytes over the wire and time"
ROWS = 500_000
WHERE = "tenant = 7"
COLUMNS = "offset, tenant int, payload"


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: where it is evaluated, MB over the wire, seconds (median of 5), ratio to the client."""
    rows = ROWS // 20 if quick else ROWS
    with testing.broker() as broker:
        generator = np.random.default_rng(1)
        table = pa.table(
            {
                "tenant": pa.array(generator.integers(0, 100, rows), pa.int32()),
                "trace": pa.array([f"{number:032x}" for number in range(rows)]),
                "payload": pa.array([b"x" * 100] * rows, pa.binary()),
            }
        )
        write_arrow(table, broker.url, "filtered", headers=["tenant", "trace"], payload="payload")
        transport = open_transport(broker.url)
        assert isinstance(transport, LadingTransport)
        expected = int((np.asarray(table["tenant"]) == 7).sum())
        results = {
            "client": [_in_client(transport, expected) for _ in range(6)][1:],
            "broker": [_in_broker(transport, expected) for _ in range(6)][1:],
        }
        transport.close()
    seconds = {where: median(took for took, _ in runs) for where, runs in results.items()}
    wire = {where: median(size for _, size in runs) for where, runs in results.items()}
    return [
        {
            "evaluated in": where,
            "MB over the wire": round(wire[where] / 1e6, 2),
            "seconds": round(seconds[where], 3),
            "bytes ratio": round(wire[where] / wire["client"], 4),
            "times faster": round(seconds["client"] / seconds[where], 1),
        }
        for where in results
    ]


def _in_broker(transport: LadingTransport, expected: int) -> tuple[float, float]:
    begun, found, size_bytes, offset = time.perf_counter(), 0, 0, 0
    (part,) = transport.topic("filtered").partitions
    while offset < part.end_offset:
        batches, offset = transport.query("filtered", 0, offset, end=part.end_offset, where=WHERE, columns=COLUMNS)
        found += sum(batch.num_rows for batch in batches)
        size_bytes += sum(batch.nbytes for batch in batches)
    assert found == expected, (found, expected)
    return time.perf_counter() - begun, size_bytes


def _in_client(transport: LadingTransport, expected: int) -> tuple[float, float]:
    from lading.columns.assemble import assemble
    from lading.columns.contract import parse_columns
    from lading.filter.parse import parse

    begun, found, size_bytes, offset = time.perf_counter(), 0, 0, 0
    projection, condition = parse_columns(COLUMNS), parse(WHERE)
    (part,) = transport.topic("filtered").partitions
    while offset < part.end_offset:
        fetched = transport.fetch("filtered", 0, offset, max_bytes=8 << 20)
        for run in fetched.runs:
            size_bytes += int((run.chunks[:, 1] - run.chunks[:, 0]).sum())
        for decoded in fetched.decode(ScanRequest(offset, fields=frozenset(projection.fields), keys=("tenant",))):
            mask = condition.mask(decoded)
            found += assemble(decoded, projection).batch.filter(mask).num_rows
        offset = fetched.end_offset
    assert found == expected, (found, expected)
    return time.perf_counter() - begun, size_bytes
