"""``iggy://`` towards a server of today's Iggy: the same commands in frames of 256 bytes (iggy-current.md).

A server of this generation waits for the rest of a frame where a classic one answers a short request. So it is found by
its silence, and by its answer to a ping of its own over another connection.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np

from ...dialects.iggy_classic import commands as c
from ...dialects.iggy_classic import responses as r
from ...dialects.iggy_classic.command_table import REQUEST_HEAD, CommandSpec
from ...dialects.iggy_classic.expiries import EXPIRY_US
from ...dialects.iggy_classic.later_codecs import FLAGGED_PARTITION, FROM_ZERO, SIZE_MAX_OR_DEFAULT
from ...dialects.iggy_classic.later_layouts import TABLE_0_8
from ...dialects.iggy_classic.partitioning import partition_by_xxhash32_from_0
from ...dialects.iggy_classic.primitives import (
    IDENTIFIER,
    NAMED_CONSUMER,
    REST,
    SHORT_TEXT,
    U8,
    U32,
    U64,
    Codec,
    Identifier,
    ignore,
    imply,
    repeat_counted,
    repeat_to_end,
)
from ...dialects.iggy_classic.records import record
from ...dialects.iggy_classic.releases import FLAGGED, MessageForm, Release
from ...dialects.iggy_current import layout, messages, stored_fallback
from ...dialects.iggy_current.checksums import hash_bytes
from ...dialects.iggy_current.errors import Eviction
from ...dialects.iggy_current.headers import EVICTION, HEADER_BYTES, parse_reply_header, request_header
from ...dialects.iggy_current.versions import V_0_11
from ...kernels import engine
from ...model.chunk_table import BASE_OFFSET, BODY_END, BODY_START, COUNT, LAST_OFFSET
from ...model.errors import MalformedMessage, RemoteError
from ...model.run import Run
from ...model.version import __version__

PROBE_S: Final = 3.0
"""A classic server has answered by then; one that has not is asked in the other way as well."""
READ, REGISTER, SEND = 2, 1, 160
_OPERATIONS: Final = {
    101: SEND, 121: 161, 202: 128, 203: 130, 302: 132, 303: 134, 402: 136, 602: 139, 603: 140, 604: 148, 605: 149,
}  # fmt: skip
"""The operation of a command that changes something, by its classic code; others are reads."""
_QUORUM: Final = 1
"""A stored offset is acknowledged when it is replicated."""
_PING: Final = 1
_RESULT_BYTES: Final = 12
_U32: Final = struct.Struct("<I")


def _skip_block(data: memoryview, at: int) -> tuple[None, int]:
    size_bytes, at = U32.read(data, at)
    if at + size_bytes > len(data):
        raise MalformedMessage(f"a block of options claims {size_bytes} bytes", at=at)
    return None, at + size_bytes


_BLOCK: Final[Codec[Any]] = Codec(_skip_block, lambda _value: U32.write(0))
"""Options, which are not used here."""
_STREAM: Final = record(
    r.StreamInfo, id=U32, created_us=U64, topics_count=U32, size_bytes=U64, messages_count=U64, name=SHORT_TEXT,
    _options=_BLOCK,
)  # fmt: skip
_TOPIC: Final = record(
    r.TopicInfo, id=U32, created_us=U64, partitions_count=U32, expiry_us=EXPIRY_US, _compression=ignore(U8, 1),
    size_bytes_max=SIZE_MAX_OR_DEFAULT, size_bytes=U64, messages_count=U64, name=SHORT_TEXT, _options=_BLOCK,
    _derived=_BLOCK,
)  # fmt: skip
_PARTITION: Final = record(
    r.PartitionInfo, id=FROM_ZERO, created_us=U64, segments_count=U32, current_offset=U64, size_bytes=U64,
    messages_count=U64,
)  # fmt: skip

_NEW_STREAM: Final = record(c.CreateStream, stream_id=imply(None), name=SHORT_TEXT)
_NEW_TOPIC: Final = record(
    c.CreateTopic, stream=IDENTIFIER, topic_id=imply(None), partitions_count=U32, name=SHORT_TEXT
)
_TOPIC_DETAILS: Final = record(r.TopicDetails, topic=_TOPIC, partitions=repeat_to_end(_PARTITION))


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """Answers the partitions of the asking member, counted from 1; None if it is no member of the group."""

    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]
    group_id: Annotated[Identifier, IDENTIFIER]


def _read_assignment(data: memoryview, at: int) -> tuple[Sequence[int] | None, int]:
    if at == len(data):
        return None, at
    _generation, at = U64.read(data, at)
    return repeat_counted(FROM_ZERO).read(data, at)


_ASSIGNMENT: Final[Codec[Sequence[int] | None]] = Codec(_read_assignment, lambda _value: b"")

CURRENT: Final = Release(
    "0.11",
    TABLE_0_8.replace_rows(
        CommandSpec(
            121,
            "consumer_offset.store",
            c.StoreOffset,
            r.NOTHING,
            record(
                c.StoreOffset,
                consumer=NAMED_CONSUMER,
                stream=IDENTIFIER,
                topic=IDENTIFIER,
                partition_id=FLAGGED_PARTITION,
                offset=U64,
                _ack=ignore(U8, _QUORUM),
            ),
        ),
        CommandSpec(201, "stream.list", c.GetStreams, repeat_to_end(_STREAM)),
        CommandSpec(202, "stream.create", c.CreateStream, REST, _NEW_STREAM),
        CommandSpec(300, "topic.get", c.GetTopic, _TOPIC_DETAILS),
        CommandSpec(301, "topic.list", c.GetTopics, repeat_counted(_TOPIC)),
        CommandSpec(302, "topic.create", c.CreateTopic, REST, _NEW_TOPIC),
        CommandSpec(606, "group.sync", SyncGroup, _ASSIGNMENT),
    ),
    MessageForm.ZERO_COPY_64,
    version=(0, 11),
    partition_of_key=partition_by_xxhash32_from_0,
    first_partition=0,
    poll_head=FLAGGED,
    is_missing_empty=True,
)
"""As a release of the classic framing, which its commands are written as before they are framed."""


class CurrentFrames:
    """The frames of one connection."""

    def __init__(self) -> None:
        self._client = os.urandom(16)
        self._session = 0
        self._request = 1

    def wrap(self, frame: bytes) -> bytes:
        """Return a classic request in a frame of today."""
        _, code = REQUEST_HEAD.unpack_from(frame)
        body = frame[REQUEST_HEAD.size :]
        operation = _OPERATIONS.get(code, READ)
        request = self._request
        if operation != READ:
            self._request += 1
        return self._frame(operation, body, request, code if operation == READ else 0)

    def receive(self, take: Callable[[int], bytearray], bytes_max: int) -> tuple[int, bytearray]:
        """Return status and body of the next reply; RemoteError where the server ends the connection."""
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
        # metadata operations tell their result in front of what they give
        (rejections,) = _U32.unpack_from(body)
        if not rejections:
            return 0, body[_U32.size :]
        if len(body) < _RESULT_BYTES:
            raise MalformedMessage("a result is cut short", at=0)
        return int(_U32.unpack_from(body, _RESULT_BYTES - _U32.size)[0]), bytearray()

    def register(self, user: tuple[str, str]) -> bytes:
        """Return the frame that logs in; ``accept`` takes what it gives."""
        words = "lading", __version__, *user
        body = U32.write(V_0_11.number) + b"".join(map(SHORT_TEXT.write, words)) + U32.write(0)
        return self._frame(REGISTER, body, 0, 0)

    def accept(self, body: bytearray) -> None:
        """Go on in the session that a login gave."""
        self._session = U64.read(memoryview(body), 4)[0]

    def _frame(self, operation: int, body: bytes, request: int, code: int) -> bytes:
        # operations on partitions, from SEND on, have none
        checksum = 0 if operation == READ or operation >= SEND else hash_bytes(body)
        head = request_header(
            self._client, len(body), operation, checksum=checksum, request=request, session=self._session, code=code
        )
        return head + body


def speaks_current(connect: Callable[[float], socket.socket], timeout_s: float) -> bool:
    """Return whether a server answers a ping of today's Iggy, over a connection of its own that ``connect`` makes."""
    try:
        with connect(timeout_s) as connection:
            connection.sendall(request_header(os.urandom(16), 0, READ, request=1, code=_PING))
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
    """Return polled batches as a Run, and the offset of the first message whose XXH3-64 does not hold, or None."""
    run = messages.find_batches(body, start)
    for chunk in run.chunks:
        part = run.region[int(chunk[BODY_START]) : int(chunk[BODY_END])]
        first, end = int(chunk[BASE_OFFSET]), int(chunk[LAST_OFFSET]) + 1
        # a batch of which the first messages were cut off keeps its base offset
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
