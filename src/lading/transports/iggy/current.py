"""``iggy://`` to a server of the current generation: the same commands in frames with 256-byte heads (iggy-current.md).

Such a server takes a short classic request for the beginning of a frame, and waits for the rest. So it is recognised by
its silence, and by its response to a ping in its own framing over another connection.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from typing import Final

import numpy as np

from ...dialects.iggy.classic.command_table import REQUEST_HEAD
from ...dialects.iggy.classic.primitives import SHORT_TEXT, U32, U64
from ...dialects.iggy.current import layout, messages, stored_fallback
from ...dialects.iggy.current.checksums import hash_bytes
from ...dialects.iggy.current.headers import EVICTION, HEADER_BYTES, Eviction, parse_reply_header, request_header
from ...dialects.iggy.current.operations import NON_REPLICATED as READ
from ...dialects.iggy.current.operations import OPERATIONS, PING, REGISTER
from ...dialects.iggy.current.operations import SEND_MESSAGES as SEND
from ...dialects.iggy.current.releases import RELEASE_0_11, V_0_11
from ...kernels import engine
from ...model.chunk_table import BASE_OFFSET, BODY_END, BODY_START, COUNT, LAST_OFFSET
from ...model.errors import MalformedMessage, RemoteError
from ...model.run import Run
from ...model.version import __version__

PROBE_S: Final = 3.0
"""A classic server responds within this time; a silent server is tried in the current framing as well."""
_RESULT_BYTES: Final = 12
_U32: Final = struct.Struct("<I")

CURRENT: Final = RELEASE_0_11
"""The release whose layouts its commands have before they are framed."""


class CurrentFrames:
    """The frames of one connection."""

    def __init__(self) -> None:
        self._client = os.urandom(16)
        self._session = 0
        self._request = 1

    def wrap(self, frame: bytes) -> bytes:
        """Return a classic request in a frame of the current generation."""
        _, code = REQUEST_HEAD.unpack_from(frame)
        body = frame[REQUEST_HEAD.size :]
        operation = OPERATIONS.get(code, READ)
        request = self._request
        if operation != READ:
            self._request += 1
        return self._build_frame(operation, body, request, code if operation == READ else 0)

    def receive(self, take: Callable[[int], bytearray], bytes_max: int) -> tuple[int, bytearray]:
        """Return status and body of the next response. Raises RemoteError if the server closes the connection."""
        facts = parse_reply_header(memoryview(take(HEADER_BYTES)))
        if facts.kind == EVICTION:
            raise RemoteError(f"the Iggy server ended the connection: {Eviction(facts.reason).name.lower()}")
        if facts.size_bytes - HEADER_BYTES > bytes_max:
            raise RemoteError(
                f"the Iggy server announced a response of {facts.size_bytes} bytes; the limit is {bytes_max}"
            )
        body = take(facts.size_bytes - HEADER_BYTES)
        if facts.status or facts.operation in (READ, SEND) or not body:
            return facts.status, body
        # metadata operations put their result before the rest of the body
        (rejections,) = _U32.unpack_from(body)
        if not rejections:
            return 0, body[_U32.size :]
        if len(body) < _RESULT_BYTES:
            raise MalformedMessage("a result is cut short", at=0)
        return int(_U32.unpack_from(body, _RESULT_BYTES - _U32.size)[0]), bytearray()

    def register(self, user: tuple[str, str]) -> bytes:
        """Return the frame of a login; ``accept`` handles the response."""
        words = "lading", __version__, *user
        body = U32.write(V_0_11.number) + b"".join(map(SHORT_TEXT.write, words)) + U32.write(0)
        return self._build_frame(REGISTER, body, 0, 0)

    def accept(self, body: bytearray) -> None:
        """Use the session of a login's response from now on."""
        self._session = U64.read(memoryview(body), 4)[0]

    def _build_frame(self, operation: int, body: bytes, request: int, code: int) -> bytes:
        # operations on partitions, from SEND on, have no result
        checksum = 0 if operation == READ or operation >= SEND else hash_bytes(body)
        head = request_header(
            self._client, len(body), operation, checksum=checksum, request=request, session=self._session, code=code
        )
        return head + body


def speaks_current(connect: Callable[[float], socket.socket], timeout_s: float) -> bool:
    """Return whether a server responds to a ping of the current framing, over a new connection by ``connect``."""
    try:
        with connect(timeout_s) as connection:
            connection.sendall(request_header(os.urandom(16), 0, READ, request=1, code=PING))
            answer = b""
            while len(answer) < HEADER_BYTES:
                part = connection.recv(HEADER_BYTES - len(answer))
                if not part:
                    return False
                answer += part
            parse_reply_header(memoryview(answer))
    except (OSError, MalformedMessage):
        return False
    return True


def read_batches(body: bytearray, start: int) -> tuple[Run, int | None]:
    """Return polled batches as a Run, and the offset of the first message whose XXH3-64 does not match, or None."""
    run = messages.find_batches(body, start)
    for chunk in run.chunks:
        part = run.region[int(chunk[BODY_START]) : int(chunk[BODY_END])]
        first, end = int(chunk[BASE_OFFSET]), int(chunk[LAST_OFFSET]) + 1
        # a batch whose first messages were cut off keeps its base offset
        base = U64.read(part.data, layout.BASE_OFFSET)[0]
        found = np.empty((int(chunk[COUNT]), 3), np.int64)
        kernels = engine.select(messages.STORED_KERNEL_MODULE, stored_fallback, part.size)
        count = kernels.intact(part, base, end, found.reshape(-1), 16 * part.size)
        if count != chunk[COUNT]:
            whole = chunk.copy()
            whole[BASE_OFFSET] = base
            intact = messages.salvage(Run(run.dialect, run.region, whole[np.newaxis])).chunks[:, BASE_OFFSET].tolist()
            return run, next((offset for offset in range(first, end) if offset not in intact), first)
    return run, None
