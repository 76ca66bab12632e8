"""A batch on its way to an Iggy server: cut into requests that the server's limits allow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from ...dialects.iggy_classic import commands as c
from ...dialects.iggy_classic import limits
from ...dialects.iggy_classic.command_table import REQUEST_HEAD
from ...dialects.iggy_classic.primitives import IDENTIFIER, PARTITIONING, U32, balanced, to_partition
from ...dialects.iggy_current import encode as current
from ...dialects.iggy_zero_copy import encode as zero_copy
from .current import CURRENT
from .server_release import WIRE_FORMS

if TYPE_CHECKING:
    import pyarrow as pa

    from ...dialects.iggy_classic.releases import Release

SEND: Final = 101
REQUEST_MESSAGES_MAX: Final = 10_000
"""Messages of one request; more gain nothing and keep others waiting."""

REQUEST_BYTES_WANTED: Final = 1 << 20
"""A request's payloads stay below this unless one message is larger."""


def encode_send(release: Release, place: tuple[str, str], partition: int | None, batch: pa.RecordBatch) -> bytes:
    """Encode the frame of a send to a server of ``release``; ``partition`` from 0, None lets the server choose."""
    from ...dialects.iggy_classic.messages import encode_sent

    partitioning = balanced() if partition is None else to_partition(partition + release.first_partition)
    form = WIRE_FORMS.get(release.name)
    if form is None and release is not CURRENT:
        return release.commands.encode_request(c.SendMessages(*place, partitioning, encode_sent(batch)))
    where = IDENTIFIER.write(place[0]) + IDENTIFIER.write(place[1]) + PARTITIONING.write(partitioning)
    metadata = where + U32.write(batch.num_rows)
    messages = zero_copy.encode_sent(batch, form, time.time_ns() // 1000) if form else current.encode_sent(batch)
    payload = U32.write(len(metadata)) + metadata + messages
    return REQUEST_HEAD.pack(REQUEST_HEAD.size // 2 + len(payload), SEND) + payload


def requests(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of the batch, in order, each within what one request may hold (iggy.md A6)."""
    import numpy as np
    import pyarrow.compute as pc

    headers: Any = batch.column("headers")
    payload: Any = batch.column("payload")
    counts = pc.list_value_length(headers).to_numpy(zero_copy_only=False)
    sizes = pc.binary_length(headers.flatten().field("value")).to_numpy(zero_copy_only=False)
    of_row = np.repeat(np.arange(batch.num_rows), counts)
    values = np.cumsum(np.bincount(of_row, sizes, batch.num_rows).astype(np.int64))
    payloads = np.cumsum(pc.binary_length(payload).to_numpy(zero_copy_only=False).astype(np.int64))
    start = values_before = payloads_before = 0
    while start < batch.num_rows:
        end = min(
            int(np.searchsorted(values, values_before + limits.REQUEST_HEADER_VALUES_BYTES_MAX, "right")),
            int(np.searchsorted(payloads, payloads_before + REQUEST_BYTES_WANTED, "right")),
            start + REQUEST_MESSAGES_MAX,
        )
        # one message alone is within the limits, the carrier saw to that
        end = min(max(end, start + 1), batch.num_rows)
        yield batch.slice(start, end - start)
        start, values_before, payloads_before = end, int(values[end - 1]), int(payloads[end - 1])
