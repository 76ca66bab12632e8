"""A batch on its way to an Iggy server: cut into requests that the server's limits allow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from ...dialects.iggy.classic import commands as c
from ...dialects.iggy.classic import limits
from ...dialects.iggy.classic.command_table import REQUEST_HEAD
from ...dialects.iggy.classic.primitives import IDENTIFIER, PARTITIONING, U32, balanced, to_partition
from ...dialects.iggy.classic.releases import UNTOLD
from ...dialects.iggy.current import encode as current
from ...dialects.iggy.current import layout as current_layout
from ...dialects.iggy.zero_copy import encode as zero_copy
from ...model.batch import ORIGIN_TIMESTAMP
from .current import CURRENT
from .server_release import WIRE_FORMS

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from ...dialects.iggy.classic.releases import Release

SEND: Final = 101
REQUEST_MESSAGES_MAX: Final = 10_000
"""Messages of one request; larger requests gain nothing and make others wait."""

REQUEST_BYTES_WANTED: Final = 1 << 20
"""A request's payloads stay below this unless one message is larger."""


def encode_send(release: Release, place: tuple[str, str], partition: int | None, batch: pa.RecordBatch) -> bytes:
    """Encode the frame of a send to a server of ``release``; ``partition`` from 0, None lets the server choose."""
    from ...dialects.iggy.classic.messages import encode_sent

    partitioning = balanced() if partition is None else to_partition(partition + release.first_partition)
    form = WIRE_FORMS.get(release.name)
    if form is None and release is not CURRENT:
        return release.commands.encode_request(c.SendMessages(*place, partitioning, encode_sent(batch)))
    where = IDENTIFIER.write(place[0]) + IDENTIFIER.write(place[1]) + PARTITIONING.write(partitioning)
    metadata = where + U32.write(batch.num_rows)
    now_us = time.time_ns() // 1000
    messages = zero_copy.encode_sent(batch, form, now_us) if form else current.encode_sent(batch, now_us)
    payload = U32.write(len(metadata)) + metadata + messages
    return REQUEST_HEAD.pack(REQUEST_HEAD.size // 2 + len(payload), SEND) + payload


def requests(batch: pa.RecordBatch, release: Release = UNTOLD) -> Iterator[pa.RecordBatch]:
    """Return slices of the batch, in order, each small enough for one request to a server of ``release``
    (iggy.md A6).
    """
    import numpy as np
    import pyarrow.compute as pc

    headers: Any = batch.column("headers")
    payload: Any = batch.column("payload")
    counts = pc.list_value_length(headers).to_numpy(zero_copy_only=False)
    sizes = pc.binary_length(headers.flatten().field("value")).to_numpy(zero_copy_only=False)
    of_row = np.repeat(np.arange(batch.num_rows), counts)
    values = np.cumsum(np.bincount(of_row, sizes, batch.num_rows).astype(np.int64))
    payloads = np.cumsum(pc.binary_length(payload).to_numpy(zero_copy_only=False).astype(np.int64))
    origins = _origin_times(batch) if release is CURRENT else None
    start = values_before = payloads_before = 0
    while start < batch.num_rows:
        end = min(
            int(np.searchsorted(values, values_before + limits.REQUEST_HEADER_VALUES_BYTES_MAX, "right")),
            int(np.searchsorted(payloads, payloads_before + REQUEST_BYTES_WANTED, "right")),
            start + REQUEST_MESSAGES_MAX,
        )
        # a single message is within the limits, as its carrier was made for them
        end = min(max(end, start + 1), batch.num_rows)
        if origins is not None:
            times_us, are_given = origins
            end = start + _count_expressible(times_us[start:end], are_given[start:end])
        yield batch.slice(start, end - start)
        start, values_before, payloads_before = end, int(values[end - 1]), int(payloads[end - 1])


def _origin_times(batch: pa.RecordBatch) -> tuple[NDArray[np.int64], NDArray[np.bool_]] | None:
    """Return the origin times of the messages and which have one; None if the batch has none."""
    import pyarrow as pa

    if ORIGIN_TIMESTAMP not in batch.schema.names:
        return None
    column: Any = batch.column(ORIGIN_TIMESTAMP).cast(pa.int64())
    times_us = column.fill_null(0).to_numpy(zero_copy_only=False)
    return times_us, column.is_valid().to_numpy(zero_copy_only=False)


def _count_expressible(times_us: NDArray[np.int64], are_given: NDArray[np.bool_]) -> int:
    """Return for how many of the first messages one batch of the current format can hold the origin times.

    A batch has the first message's time and the differences of the others, which must not be negative (iggy-current.md
    B4).
    """
    first = times_us[0]
    apart = (times_us < first) | (times_us > first + current_layout.DELTA_MAX) | (are_given != are_given[0])
    return int(apart.argmax()) or len(apart)
