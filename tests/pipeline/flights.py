"""Flights with known faults: what becomes of each message follows from its partition and row number."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from lading.client.header_columns import headers_of
from lading.client.outgoing import complete
from lading.tables.formats.registry import open_table
from lading.transports.interface import Transport

NO_CARRIER, BAD_DELAY, BAD_SUM = 50, 70, 90
"""Every so many rows one lacks its carrier, has an unreadable delay, or another checksum."""
BAD_PAYLOAD, CUT, UNKNOWN = 100, 7, 8
"""Of so many rows one has a cut payload, and one the id of a schema that does not exist, if payloads have faults."""

TOML = """
[pipeline]
id = "flights"
max_rows = {max_rows}
max_rows_per_task = 1_000

[source]
from = "{source}"
topic = "{topic}"
server = "{server}"

[headers]
carrier = "string required"
delay = {{ type = "int", encoding = "auto" }}

[good]
to = "parquet:./tables/flights"

[[route]]
where = "delay > 60"
to = "parquet:./tables/late"
"""
QUARANTINE = """
[quarantine]
to = "parquet:./tables/quarantine"
topic = "{topic}"
"""


def fate(row: int, payload_faults: tuple[str | None, str | None] = (None, None)) -> str:
    """What becomes of a message: a reason, or its destination; the faults are the reasons for a cut payload, and for
    one whose schema does not exist."""
    if (at := row % BAD_PAYLOAD - CUT) in (0, UNKNOWN - CUT) and payload_faults[at] is not None:
        return str(payload_faults[at])
    if row % NO_CARRIER == 1:
        return "missing_header"
    if row % BAD_DELAY == 2:
        return "bad_value"
    if row % BAD_SUM == 3:
        return "checksum_mismatch"
    return "late" if row % 200 > 60 else "flights"


def write_json(row: int, partition: int) -> bytes:
    """The payload of a row, as JSON."""
    return b'{"row": %d, "p": %d}' % (row, partition)


def messages(partition: int, rows: int, write: Callable[[int, int], bytes] = write_json) -> pa.RecordBatch:
    """``rows`` messages of a partition, whose payloads ``write`` makes of row and partition."""
    at = np.arange(rows)
    carrier = pa.array(np.array(["UA", "AA", "DL"])[at % 3], mask=at % NO_CARRIER == 1)
    delay: Any = pa.array(at % 200).cast(pa.string()).to_numpy(zero_copy_only=False)
    delay[at % BAD_DELAY == 2] = "late!"
    columns = pa.record_batch({"carrier": carrier, "delay": pa.array(delay, pa.string())})
    payload = [write(row, partition) for row in at.tolist()]
    sums = np.array([zlib.crc32(each) for each in payload], np.uint32)
    sums[at % BAD_SUM == 3] ^= 1
    return complete(
        rows,
        {
            "headers": headers_of(columns, {"carrier": "carrier", "delay": "delay"}, "absent"),
            "payload": pa.array(payload),
            "checksum": pa.array(sums),
        },
    )


def fill(
    transport: Transport, topic: str, partitions: int, rows: int, write: Callable[[int, int], bytes] = write_json
) -> None:
    """Make the topic with ``rows`` messages in each partition."""
    transport.create_topic(topic, partitions)
    for partition in range(partitions):
        transport.send(topic, partition, messages(partition, rows, write))


def table(directory: Path) -> pa.Table:
    """A published table, as readers of its form see it; Arrow's datasets know the others by the same name."""
    form: Any = open_table(directory).form
    if form == "delta":
        return DeltaTable(directory).to_pyarrow_table()
    if form == "iceberg":
        return StaticTable.from_metadata(str(directory)).scan().to_arrow()
    return ds.dataset(directory, format=form, exclude_invalid_files=False).to_table()


def found(tables: Path) -> dict[tuple[int, int], list[str]]:
    """Where each message (partition, offset) is: table names, and reasons for those in quarantine."""
    places: dict[tuple[int, int], list[str]] = {}
    for name in ("flights", "late", "quarantine"):
        files = (tables / name).rglob(f"*.{open_table(tables / name).suffix}")
        if not any("_lading" not in file.parts for file in files):
            continue
        held = table(tables / name)
        kinds: list[Any] = held["reason"].to_pylist() if name == "quarantine" else [name] * held.num_rows
        rows: Any = zip(held["partition"].to_pylist(), held["offset"].to_pylist(), kinds, strict=True)
        for partition, offset, kind in rows:
            places.setdefault((partition, offset), []).append(kind)
    return places


def assert_every_message_once(
    tables: Path, partitions: int, rows: int, payload_faults: tuple[str | None, str | None] = (None, None)
) -> dict[str, int]:
    """Each message is in one table, the one it belongs to, once; returns how many are where."""
    places = found(tables)
    expected = {(partition, row): [fate(row, payload_faults)] for partition in range(partitions) for row in range(rows)}
    lost = sum(place not in places for place in expected)
    twice = sum(len(kinds) > 1 for kinds in places.values())
    assert (lost, twice) == (0, 0)
    assert places == expected
    return dict(Counter(kinds[0] for kinds in places.values()))
