"""Compression of a client of nsqd that has negotiated it, in both directions (nsq.md 1.5)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ....dialects.nsq.errors import NsqProtocolError
from ...io.compression import CompressedSession

if TYPE_CHECKING:
    from ....dialects.nsq.identify import Features
    from ...base.responses import ResponseQueue
    from ...base.session import ConnectionHandle


def start_compression(connection: ConnectionHandle, responses: ResponseQueue, features: Features) -> None:
    """Compress what follows the response that was given last. Raises NsqProtocolError if that is impossible now."""
    # most clients do without, and so does the start of the broker
    from ....dialects.nsq import compression

    if not responses.is_empty:
        raise NsqProtocolError("E_INVALID", "cannot IDENTIFY with compression before publications are answered")
    if not connection.inbox.hold_elsewhere(compression.STREAM_BYTES):
        raise NsqProtocolError("E_IDENTIFY_FAILED", "no memory for a compressed connection; retry later")
    layer = (
        partial(CompressedSession, compression.SnappyReader(), compression.SnappyWriter())
        if features.snappy
        else partial(CompressedSession, compression.DeflateReader(), compression.DeflateWriter(features.deflate_level))
    )
    connection.insert_layer(partial(layer, compression.STREAM_BYTES))
