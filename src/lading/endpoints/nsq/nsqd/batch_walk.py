"""The end of an MPUB as nsqd finds it: by the sizes of its items, whatever length the command declares.

nsqd holds the declared length against its limit and never looks at it again. Clients rely on that: squeaky 2.6.0
declares the bodies of its messages alone, without their count and sizes.
"""

from __future__ import annotations

from ....dialects.nsq import limits, publishing, send_layout
from ....dialects.nsq.errors import NsqProtocolError
from .message_store import COUNT_BYTES, Bytes, item_size_error, require_count, size_at


class BatchWalk:
    """How far the items of one MPUB have come; what was passed once is not looked at again with the next bytes."""

    __slots__ = ("_count", "_needed_bytes", "_passed", "_passed_bytes")

    def __init__(self) -> None:
        self._count = 0
        """Items that it says it has; 0 before the count is here."""
        self._passed = 0
        self._passed_bytes = self._needed_bytes = COUNT_BYTES
        """Of the body, whose place moves: passed, and to be here before there is more to pass."""

    def find_end(self, source: Bytes, body: int, have: int) -> int | None:
        """Return the end of the items of the MPUB with its body at ``source[body:have]``, None until all are here.

        Raises NsqProtocolError for a count or size that nsqd refuses, and if the items are longer than the largest
        body: before their bytes are here.
        """
        if have - body < self._needed_bytes:
            return None
        if not self._count:
            self._count = require_count(size_at(source, body))
        end_max = body + limits.REQUEST_BYTES_MAX
        left = self._count - self._passed
        passed, end, needed, reason = publishing.pass_items(source, body + self._passed_bytes, have, end_max, left)
        self._passed += passed
        self._passed_bytes, self._needed_bytes = end - body, needed - body
        if reason == send_layout.BAD_ITEM:
            raise NsqProtocolError("E_BAD_BODY", f"body too big {self._needed_bytes} > {limits.REQUEST_BYTES_MAX}")
        if reason:
            raise item_size_error(reason, self._passed, size_at(source, end))
        return end if passed == left else None
