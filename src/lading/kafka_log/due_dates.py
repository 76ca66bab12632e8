"""The header with the time until which channels keep a message back, as Kafka has no such field.

The message is in its topic at once. A gateway that acquires it for a channel keeps renewing it, and delivers it when it
is due; if the gateway dies meanwhile, the next one that acquires it does so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from ..dialects import registry
from ..model.batch import HEADERS_TYPE, SCHEMA
from ..model.kinds import Kind
from ..model.scan_request import ScanRequest

if TYPE_CHECKING:
    from ..transports.kafka.share import AcquiredMessages

DEFERRED_UNTIL: Final = "lading-deferred-until"
"""The header: a date in microseconds since 1970, as text."""
DueDates = dict[tuple[int, int], int]
"""Dates by partition and offset."""


def add_due_date(batch: pa.RecordBatch, due_date_us: int) -> pa.RecordBatch:
    """Return messages with the header that has their due date."""
    # raw: another kind would need a carrier
    header = {"key": DEFERRED_UNTIL, "kind": Kind.RAW.value, "value": b"%d" % due_date_us}
    rows = [[*(headers or ()), header] for headers in batch["headers"].to_pylist()]
    at = batch.schema.get_field_index("headers")
    return batch.set_column(at, batch.schema.field(at), pa.array(rows, HEADERS_TYPE))


def find_due_dates(found: Iterable[AcquiredMessages]) -> DueDates:
    """Return the dates of acquired messages that have one; runs in the thread that acquired them."""
    dues: DueDates = {}
    key = DEFERRED_UNTIL.encode()
    for acquired in found:
        # gateways send without compression, so that most batches are not searched again
        if key not in bytes(np.asarray(acquired.run.region)):
            continue
        for part in registry.decode(acquired.run, ScanRequest(fields=frozenset(SCHEMA.names))):
            batch = registry.to_batch(part)
            offsets = batch["offset"].to_numpy().tolist()
            for offset, headers in zip(offsets, batch["headers"].to_pylist(), strict=True):
                for header in headers or ():
                    value = header["value"] or b""
                    if header["key"] == DEFERRED_UNTIL and value.isdigit():
                        dues[acquired.partition, offset] = int(value)
    return dues
