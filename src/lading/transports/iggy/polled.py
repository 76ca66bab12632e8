"""Response of an Iggy server to a poll, as a Run for the dialect to decode."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from ...dialects.iggy.classic.headers_only import complete
from ...dialects.iggy.classic.layout import POLLED_HEAD_BYTES
from ...dialects.iggy.classic.messages import parse_polled_run
from ...dialects.iggy.classic.releases import UNTOLD, MessageForm, Release
from ...dialects.iggy.zero_copy.messages import read_polled
from ...model.chunk_table import BASE_OFFSET, COUNT, LAST_OFFSET, MIN_TIMESTAMP_US
from ...model.errors import MalformedMessage
from ...model.run import Run
from .current import CURRENT, read_batches
from .server_release import WIRE_FORMS

_LATER_HEAD_BYTES: Final = 16
_U32: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Polled:
    """The messages of one response: none, or ``count`` of them from ``first`` to ``last``, both offsets included.

    ``size_bytes`` is what they take in it.
    """

    run: Run
    size_bytes: int
    damaged: int | None = None
    """The offset of the first message whose checksum does not match, if that covers more than the payload."""

    @property
    def count(self) -> int:
        """Return how many messages it holds."""
        return int(self.run.chunks[:, COUNT].sum())

    @property
    def first(self) -> int:
        """Offset of the first message, -1 without messages."""
        return self._value_of(BASE_OFFSET, -1)

    @property
    def last(self) -> int:
        """Offset of the last message, -1 without messages."""
        return int(self.run.chunks[-1, LAST_OFFSET]) if len(self.run.chunks) else -1

    @property
    def first_timestamp_us(self) -> int:
        """Time of the earliest message, -1 without messages."""
        return self._value_of(MIN_TIMESTAMP_US, -1)

    def _value_of(self, column: int, nothing: int) -> int:
        return int(self.run.chunks[0, column]) if len(self.run.chunks) else nothing


def parse_poll_response(body: bytearray, release: Release = UNTOLD) -> Polled:
    """Parse the body of a poll response by a server of ``release``. Raises MalformedMessage if it is not one."""
    if release.form is MessageForm.HEADERS_ONLY:
        messages = complete(memoryview(body)[POLLED_HEAD_BYTES:])
        return Polled(parse_polled_run(body[:POLLED_HEAD_BYTES] + messages), len(messages))
    if not release.tells_partition:
        return Polled(parse_polled_run(body), len(body) - POLLED_HEAD_BYTES)
    if len(body) < _LATER_HEAD_BYTES:
        raise MalformedMessage(f"a poll's answer has {len(body)} bytes, not even its head", at=0)
    form, damaged = WIRE_FORMS.get(release.name), None
    if release is CURRENT:
        run, damaged = read_batches(body, _LATER_HEAD_BYTES)
    elif form is None:
        run = parse_polled_run(body, _LATER_HEAD_BYTES)
    else:
        run, damaged = read_polled(body, _LATER_HEAD_BYTES, form)
    polled = Polled(run, len(body) - _LATER_HEAD_BYTES, damaged)
    (count,) = _U32.unpack_from(body, _LATER_HEAD_BYTES - _U32.size)
    if polled.count != count:
        raise MalformedMessage(f"the answer holds {polled.count} messages, not {count} as it says", at=0)
    return polled
