"""aioquic's connection with windows that follow what was read, in place of windows that only grow.

aioquic doubles a window as soon as half of it is used, even if nothing was read, and allocates memory for gaps before
received bytes: one byte far ahead in each of a few streams takes gigabytes. Here a window is a fixed distance beyond
the bytes that were read. This replaces two of aioquic's private methods, and a third for clients' certificates, as it
has no public way; ``tests/endpoints/test_quic_hostile.py`` and ``test_quic_certificates.py`` test what they are for.
Without I/O.
"""

from __future__ import annotations

from typing import Any, Final, cast

from aioquic import tls
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import (
    CONNECTION_LIMIT_FRAME_CAPACITY,
    MAX_STREAM_DATA_FRAME_CAPACITY,
    Limit,
    QuicConnection,
)
from aioquic.quic.packet import QuicFrameType
from aioquic.quic.packet_builder import QuicPacketBuilder
from aioquic.quic.stream import QuicStream
from cryptography.x509 import Certificate

WINDOW_BYTES: Final = 1 << 20
"""How far a peer may send beyond the read bytes, in one stream and in all together."""


class BoundedQuicConnection(QuicConnection):
    """The state of one connection of a server: datagrams and the time in, events and datagrams out."""

    def __init__(self, *, configuration: QuicConfiguration, streams_max: int, **cids: Any) -> None:
        """``streams_max``: requests under way; the peer may open no streams of one direction."""
        super().__init__(configuration=configuration, **cids)
        self._local_max_streams_bidi = Limit(QuicFrameType.MAX_STREAMS_BIDI, "max_streams_bidi", streams_max)
        self._local_max_streams_uni = Limit(QuicFrameType.MAX_STREAMS_UNI, "max_streams_uni", 0)
        self._read_bytes = 0
        self.is_withholding = False
        """Whether windows are not raised at present: the peer has only the room already granted."""

    def _initialize(self, peer_cid: bytes) -> None:
        super()._initialize(peer_cid)
        # request certificates of clients: aioquic has no other way to do so, and does not verify them
        self.tls._request_client_certificate = bool(self.configuration.verify_mode)

    @property
    def client_certificates(self) -> list[Certificate]:
        """Return the certificates that the client sent, its own first.

        Only its possession of the key is verified so far.
        """
        first = self.tls._peer_certificate
        return [] if first is None else [first, *self.tls._peer_certificate_chain]

    def count_read(self, size_bytes: int) -> None:
        """Note that ``size_bytes`` were taken out of streams, or never will be: the peer may send as much again."""
        self._read_bytes += size_bytes

    @property
    def unordered_bytes(self) -> int:
        """Return the bytes held because bytes before them are missing, these gaps included."""
        used: int = self._local_max_data.used
        return used - self._read_bytes

    def unread_bytes_of(self, stream_id: int) -> int:
        """Return the bytes of a reset stream that count against the window and will never be read."""
        stream = self._streams.get(stream_id)
        return 0 if stream is None else stream.receiver.highest_offset - stream.receiver.starting_offset()

    def wants_response(self, stream_id: int) -> bool:
        """Return whether the peer has not asked to be sent nothing on a stream."""
        stream = self._streams.get(stream_id)
        return stream is not None and stream.sender._reset_error_code is None

    def count_unacknowledged_bytes(self) -> int:
        """Return how many bytes were written to streams and are not acknowledged by the peer."""
        return sum(
            stream.sender._buffer_stop - stream.sender._buffer_start
            for stream in self._streams.values()
            if stream.sender._reset_error_code is None
        )

    def acknowledge_now(self, now_s: float) -> None:
        """Let what is sent next carry an acknowledgement that is due soon, so that it takes no datagram of its own."""
        space = self._spaces.get(tls.Epoch.ONE_RTT)
        if space is not None and space.ack_at is not None:
            space.ack_at = min(space.ack_at, now_s)

    def _write_connection_limits(self, builder: QuicPacketBuilder, space: object) -> None:
        data = self._local_max_data
        if not self.is_withholding:
            data.value = max(data.value, self._read_bytes + WINDOW_BYTES)
        for limit in (data, self._local_max_streams_bidi):
            # frames are spared until more can be granted than is left
            if limit.value != limit.sent and limit.value - limit.sent >= limit.sent - limit.used:
                buffer = builder.start_frame(
                    limit.frame_type,
                    capacity=CONNECTION_LIMIT_FRAME_CAPACITY,
                    handler=self._on_connection_limit_delivery,
                    handler_args=(limit,),
                )
                buffer.push_uint_var(limit.value)
                limit.sent = limit.value

    def _write_stream_limits(self, builder: QuicPacketBuilder, space: object, stream: QuicStream) -> None:
        receiver = stream.receiver
        granted = receiver.starting_offset() + WINDOW_BYTES
        if receiver.is_finished or granted - stream.max_stream_data_local_sent < WINDOW_BYTES // 2:
            return
        stream.max_stream_data_local = max(stream.max_stream_data_local, granted)
        buffer = builder.start_frame(
            QuicFrameType.MAX_STREAM_DATA,
            capacity=MAX_STREAM_DATA_FRAME_CAPACITY,
            handler=self._on_max_stream_data_delivery,
            handler_args=(stream,),
        )
        buffer.push_uint_var(cast("int", stream.stream_id))
        buffer.push_uint_var(stream.max_stream_data_local)
        stream.max_stream_data_local_sent = stream.max_stream_data_local
