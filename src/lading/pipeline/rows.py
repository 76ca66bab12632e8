"""Quarantined messages as rows of the table, as copies for the quarantine topic, and as redriven, in Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..client.outgoing import OUT_SCHEMA
from ..columns.locate import locate
from ..columns.rewrite import with_headers
from ..columns.typed import convert_column
from ..model.batch import FIELDS
from ..model.kinds import Kind
from ..model.reason_headers import DETAIL, ORIGIN, PIPELINE, REASON, REASON_HEADER, REASON_HEADERS
from .reasons import Failure

REPLAYS = "lading-replays"
"""The one header that a redrive sets: how often the message was redriven, in decimal digits.

It is of kind raw, which every system keeps unchanged, without a carrier. It used to be uint32, which is still read.
"""
TIMESTAMP_US = "timestamp_us"
"""The column of the quarantine table with the time of the message as the number of microseconds since 1970."""
COPY_SCHEMA = pa.schema([pa.field("partition", pa.int32()), *OUT_SCHEMA])
"""The columns of a copy, with the partition of the original."""


def replays_of(headers: pa.Array[Any]) -> pa.Array[Any]:
    """Return how often each message was redriven before: 0 if the header is absent or not a number."""
    counted: Any = convert_column(locate(headers, [REPLAYS])[REPLAYS], pa.int32())[0]
    return cast("pa.Array[Any]", counted.fill_null(0))


def quarantine_columns(
    messages: pa.RecordBatch, failures: list[Failure], which: pa.Array[Any], place: Mapping[str, str | int],
    now_us: int, details: pa.Array[Any] | None = None,
) -> dict[str, pa.Array[Any]]:  # fmt: skip
    """Return the columns of the quarantine table for messages of the Batch schema; ``which`` indexes ``failures``.

    ``details`` are sentences instead of those of the failures, null for a message that has none.
    """
    rows = messages.num_rows

    def words(values: list[str | None]) -> pa.Array[Any]:
        return pa.array(values, pa.string()).take(which)

    made: dict[str, Any] = {
        "reason": words([failure.reason for failure in failures]),
        "header": words([failure.header for failure in failures]),
        "detail": words([failure.sentence for failure in failures]),
        "replays": replays_of(messages.column("headers")),
        "quarantined_at": pa.repeat(pa.scalar(now_us, pa.timestamp("us", tz="UTC")), rows),
        "stream": pa.repeat(pa.scalar(str(place["stream"])), rows),
        "topic": pa.repeat(pa.scalar(str(place["topic"])), rows),
        "partition": pa.repeat(pa.scalar(int(place["partition"]), pa.int32()), rows),
    }
    if details is not None:
        made["detail"] = pc.coalesce(details, made["detail"])
    # in the table a time outside the years 1 to 9999 is null, and a redrive needs it
    made[TIMESTAMP_US] = messages.column("timestamp").cast(pa.int64())
    return made | {name: messages.column(name) for name in FIELDS}


def copies(quarantine: Mapping[str, pa.Array[Any]], topic: str, pipeline: str) -> pa.RecordBatch:
    """Return the messages for the quarantine topic: unchanged, with the reason headers set."""
    rows = len(quarantine["offset"])
    parts: list[Any] = [
        pa.repeat(pa.scalar(topic), rows),
        quarantine["partition"].cast(pa.string()),
        quarantine["offset"].cast(pa.string()),
        pa.repeat(pa.scalar("/"), rows),
    ]
    place: Any = pc.binary_join_element_wise(*parts)
    added: dict[str, Any] = {
        REASON: quarantine["reason"],
        REASON_HEADER: quarantine["header"],
        DETAIL: quarantine["detail"],
        ORIGIN: place,
        PIPELINE: pa.repeat(pa.scalar(pipeline), rows),
    }
    kinds = dict.fromkeys(added, Kind.STRING)
    headers = with_headers(quarantine["headers"], added, kinds, drop=REASON_HEADERS)
    columns = {**quarantine, "headers": headers}
    return pa.RecordBatch.from_arrays([columns[name] for name in COPY_SCHEMA.names], schema=COPY_SCHEMA)


def replay(messages: pa.RecordBatch) -> pa.RecordBatch:
    """Return quarantined messages for a redrive: with their headers, the counter increased by one, the rest null."""
    numbers: Any = messages.column("replays").to_numpy(zero_copy_only=False)
    raised: Any = pa.array(numbers.astype(np.int64) + 1).cast(pa.string()).cast(pa.binary())
    headers = with_headers(messages.column("headers"), {REPLAYS: raised}, {REPLAYS: Kind.RAW}, drop=(REPLAYS,))
    columns = {name: messages.column(name) for name in FIELDS if name in messages.schema.names} | {"headers": headers}
    return pa.RecordBatch.from_arrays(
        [columns[name].cast(OUT_SCHEMA.field(name).type) for name in OUT_SCHEMA.names], schema=OUT_SCHEMA
    )
