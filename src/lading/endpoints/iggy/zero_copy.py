"""Sends and polls of the crates 0.7 to 0.10, whose messages are a fixed header, then payload, then headers."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ...broker.core.append.append import WriteResult, choose_partition
from ...broker.core.pending_append import Append
from ...broker.core.read import ReadResult, RunSlice
from ...dialects import codes, registry
from ...dialects.iggy.classic.errors import REASON_OF
from ...dialects.iggy.classic.protocol import ZERO_COPY_POLLED
from ...dialects.iggy.zero_copy import messages
from ...dialects.iggy.zero_copy.encode import encode_stored
from ...dialects.iggy.zero_copy.layout import FORM_0_7, FORM_0_8, FORM_0_9, INDEX_BYTES, WireForm
from ...model.batch import FIELDS_WITH_ORIGIN
from ...model.errors import MalformedMessage, Reason
from ...model.scan_request import ScanRequest
from ..base.carrying import Fit
from .answers import UNBOUNDED, Answer, PolledPlace
from .poll import Poller
from .send import LocatedMessages, Route, Sender

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...dialects.carrier import Carried

_U32: Final = struct.Struct("<I")
NONE_AS_STORED: Final = 0
"""A code that no dialect has, so that no messages are sent as stored."""


class ZeroCopySender(Sender):
    """Handles sends: ``[length of the metadata][stream][topic][partitioning][count]``, an index of the messages, the
    messages.
    """

    form: ClassVar[WireForm] = FORM_0_9
    _dialect = codes.IGGY_ZERO_COPY

    def send(self, payload: memoryview, source: NDArray[np.uint8], start: int, who: object, now_us: int) -> Append:
        if len(payload) < _U32.size:
            raise MalformedMessage("the request ends inside its head", at=0)
        head = _U32.size + _U32.unpack_from(payload)[0]
        if not 2 * _U32.size <= head <= len(payload):
            raise MalformedMessage("the request ends inside its head", at=len(payload))
        count_at = head - _U32.size
        (count,) = _U32.unpack_from(payload, count_at)
        if not count:
            raise MalformedMessage("a send holds no message", reason=Reason.INVALID_COUNT)
        if head + INDEX_BYTES * count > len(payload):
            raise MalformedMessage("the request ends inside the index of its messages", at=len(payload))
        name = bytes(payload[_U32.size : count_at])
        topic, choice = self._routes.get(name) or self._find_route(name, payload[_U32.size :])
        partition = choose_partition(topic, choice)
        time_us = partition.log.append_time_us(now_us)
        index_at = start + head
        first, end = index_at + INDEX_BYTES * count, start + len(payload)
        form, random = self.form, self._random

        def write(array: NDArray[np.uint8], at: int, base_offset: int) -> WriteResult:
            code, done, size_bytes = messages.restamp(
                source, index_at, first, end, form, array, at, base_offset, time_us, random
            )
            if code:
                raise MalformedMessage(f"message {done} of the request is refused", reason=REASON_OF[code])
            return WriteResult(size_bytes, done, time_us, time_us + done - 1)

        room_bytes = messages.room(end - first, count, form)
        append = self._broker.appender.append(partition, codes.IGGY_ZERO_COPY, 0, room_bytes, write, who)
        self._messages_in[self._labels] += append.count
        return append

    def find_head(self, payload: memoryview) -> bytes:
        return bytes(payload[: _U32.unpack_from(payload)[0]])

    def get_route(self, head: bytes) -> Route | None:
        # routes are known without the length, which comes first
        return super().get_route(head[_U32.size :])

    def _locate(self, source: NDArray[np.uint8], head_end: int, end: int) -> LocatedMessages:
        index = head_end + _U32.size
        if index > end:
            raise MalformedMessage("the request ends inside its head", at=end)
        (count,) = _U32.unpack_from(source.data, head_end)
        first = index + INDEX_BYTES * count
        if not count or first > end:
            raise MalformedMessage("a send holds no message, or ends inside the index", reason=Reason.INVALID_COUNT)
        return LocatedMessages(index, first, end, count)

    def _measure_room(self, located: LocatedMessages) -> int:
        return messages.room(located.end - located.first_at, located.messages_count, self.form)

    def _restamp(
        self,
        source: NDArray[np.uint8],
        located: LocatedMessages,
        target: NDArray[np.uint8],
        to: int,
        base_offset: int,
        time_us: int,
    ) -> tuple[int, int, int]:
        index, first, end, _ = located
        return messages.restamp(source, index, first, end, self.form, target, to, base_offset, time_us, self._random)


class ZeroCopySender08(ZeroCopySender):
    """The sender of releases with 56 bytes in front of a message."""

    form = FORM_0_8


class ZeroCopyPoller(Poller):
    """Polls messages as they are stored."""

    shows_states = False
    target = ZERO_COPY_POLLED
    form: ClassVar[WireForm] = FORM_0_9
    stored_as = codes.IGGY_ZERO_COPY

    @classmethod
    def render(cls, reading: ReadResult, place: PolledPlace, fit: Fit | None = None) -> Answer:
        """See ``answers.answer_of``."""
        parts: list[bytes | bytearray | memoryview] = []
        count = stubs = 0
        for piece in reading.pieces:
            stored = cls._cut(piece) if piece.run.dialect == codes.IGGY_ZERO_COPY else None
            if stored is not None:
                parts += stored.parts
                count += stored.count
                continue
            for carried in _carry(piece, fit):
                parts.append(encode_stored(carried.batch, cls.form))
                count += carried.batch.num_rows
                stubs += len(carried.unholdable)
        return Answer(count, parts, stubs, place)

    @classmethod
    def _cut(cls, piece: RunSlice) -> messages.Slices | None:
        """Return stored messages in the release's form; None if some have header keys that the release cannot have."""
        cut = messages.slices(piece.run, piece.first, piece.end, UNBOUNDED, UNBOUNDED)
        if cls.form == FORM_0_9:
            return cut
        short = [messages.shorten(part, cls.form) for part in cut.parts]
        found = [part for part in short if part is not None]
        return messages.Slices(cut.count, cut.last_offset, found) if len(found) == len(short) else None


class ZeroCopyPoller08(ZeroCopyPoller):
    """The poller of releases with 56 bytes in front of a message, which a worker encodes because stored ones differ."""

    form = FORM_0_8
    stored_as = NONE_AS_STORED


class ZeroCopyPoller07(ZeroCopyPoller08):
    """The poller of release 0.7, whose checksum is CRC-32."""

    form = FORM_0_7


def _carry(piece: RunSlice, fit: Fit | None) -> Iterator[Carried]:
    """Return messages in a form that these releases can hold."""
    assert fit is not None, "the poller gives it where not everything goes as it is stored"
    for some in registry.decode(piece.run, ScanRequest(piece.first, piece.end, FIELDS_WITH_ORIGIN)):
        yield fit(registry.to_batch(some))
