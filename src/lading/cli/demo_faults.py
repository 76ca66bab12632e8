"""Faults in some of the demo's flights, on purpose: broken headers, damaged payloads, a poisoned carrier."""

from __future__ import annotations

import re
import zlib
from typing import Any

import numpy as np
import pyarrow as pa

from ..model.batch import SCHEMA
from ..model.kinds import Kind
from ..model.state import State

DAMAGED_EVERY, MISTYPED_EVERY = 4_999, 2_503
"""One flight in 4,999 has a byte of its payload changed, and one in 2,503 has its delay in words."""
POISONED = "carrier = 'HA'"
SENT = pa.schema([SCHEMA.field("checksum"), SCHEMA.field("headers"), SCHEMA.field("payload")])


def with_faults(batch: pa.RecordBatch, first: int) -> list[pa.RecordBatch]:
    """Return a batch, whose first message is the ``first``-th of all, with faults.

    Every message has the CRC-32 of its correct payload; damaged messages are in a batch of their own.
    """
    at = first + np.arange(batch.num_rows)
    damaged, mistyped = at % DAMAGED_EVERY == 7, at % MISTYPED_EVERY == 11
    payloads: list[Any] = batch.column("payload").to_pylist()
    checksums = pa.array([zlib.crc32(payload) for payload in payloads], SENT.field("checksum").type)
    whole = pa.RecordBatch.from_arrays([checksums, batch.column("headers"), batch.column("payload")], schema=SENT)
    broken = []
    for row in np.flatnonzero(damaged | mistyped).tolist():
        (message,) = whole.slice(row, 1).to_pylist()
        if damaged[row]:
            # it is still JSON: only the checksum shows the change
            message["payload"] = re.sub(rb"[0-8]", b"9", message["payload"], count=1)
        if mistyped[row]:
            for header in message["headers"]:
                if header["key"] == "dep_delay":
                    header.update(kind=int(Kind.STRING), value=b"soon")
        broken.append(message)
    sound = whole.filter(pa.array(~(damaged | mistyped)))
    return [sound, *([pa.RecordBatch.from_pylist(broken, schema=SENT)] if broken else [])]


def poison(url: str, topic: str) -> int:
    """Set the messages that POISONED selects to poisoned, so that readers of available messages no longer see them."""
    from ..client.states import set_state

    return set_state(url, topic, State.POISONED, where=POISONED).changed
