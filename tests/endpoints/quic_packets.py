"""Packets of QUIC, rightly encrypted, whose frames are whatever a test puts into them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from aioquic.buffer import encode_uint_var
from aioquic.tls import Epoch

from tests.endpoints.quic_frames import PING, QuicFrames, frame, sending


class QuicPackets(QuicFrames):
    """A connection that can send frames which aioquic would not."""

    def send_packet(self, frames: bytes) -> None:
        """Send these frames as one packet."""
        quic: Any = self.quic
        number = quic._packet_number
        quic._packet_number += 1
        header = b"\x41" + quic._peer_cid.cid + struct.pack(">H", number & 0xFFFF)
        # PADDING behind them: the protection of the header takes a sample of so many bytes
        packet = quic._cryptos[Epoch.ONE_RTT].encrypt_packet(header, frames + bytes(4), number)
        self.socket.sendto(packet, self.address)


def _numbers(*numbers: int) -> bytes:
    return b"".join(map(encode_uint_var, numbers))


_PINGED: Final = frame(PING)
_SENT: Final = sending(b"payload")
FRAMES: Final[Sequence[bytes]] = (
    _numbers(0x0B, 4, len(_PINGED)) + _PINGED,
    _numbers(0x0E, 4, 0, 4) + _PINGED[:4] + _numbers(0x0F, 4, 4, len(_PINGED) - 4) + _PINGED[4:],
    _numbers(0x0B, 4, len(_SENT)) + _SENT + _numbers(0x05, 4, 7),
    _numbers(0x0A, 4, 4) + _PINGED[:4] + _numbers(0x04, 4, 7, 4),
    _numbers(0x0A, 400, 4) + _PINGED[:4],
    _numbers(0x02, 3, 10, 0, 1),
    _numbers(0x03, 3, 10, 1, 0, 0, 1, 1, 1, 1),
    _numbers(0x06, 0, 4) + b"\x14\0\0\1",
    _numbers(0x10, 1 << 20) + _numbers(0x11, 0, 1 << 20) + _numbers(0x12, 200) + _numbers(0x13, 200),
    _numbers(0x14, 9) + _numbers(0x15, 0, 9) + _numbers(0x16, 9) + _numbers(0x17, 9),
    _numbers(0x18, 9, 2, 8) + b"cidcidci" + bytes(16),
    _numbers(0x19, 1),
    _numbers(0x1A) + b"12345678" + _numbers(0x1B) + b"12345678",
    _numbers(0x1C, 7, 8, 3) + b"bye",
    _numbers(0x1D, 7, 3) + b"bye",
    _numbers(0x31, 4) + b"none",
    _numbers(0x07, 5) + b"token" + _numbers(0x1E),
)
"""Every kind of RFC 9000, 19 and a DATAGRAM; the last two are for servers only."""
