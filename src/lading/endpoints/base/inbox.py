"""The bytes of one connection that were received and are not parsed yet, in a buffer that grows as they arrive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from .receive_budget import ReceiveBudget
from .responses import Bytes

BUFFER_BYTES = 16 << 10
PIECE_BYTES_MAX: Final = 4 << 10
IDLE_BUFFER_BYTES_MAX = 1 << 20
BUSY_BUFFER_BYTES_MAX = 4 << 20
"""A buffer that grew beyond this is given back when it is empty; the larger holds while memory is ample."""

_NO_BYTES: Final = np.empty(0, np.uint8)


class Inbox:
    """Unread bytes are ``view[at:have]``. Memory is taken for received bytes only, never for a length that a client
    claims.
    """

    __slots__ = ("_account", "_budget", "_elsewhere_bytes", "array", "at", "data", "have", "is_large", "view")

    def __init__(self, budget: ReceiveBudget) -> None:
        self._budget = budget
        self._account = budget.open()
        self._elsewhere_bytes = 0
        self.at = self.have = 0
        self.is_large = False
        """Whether the buffer has grown so far that it may have to be given back."""
        self.data = bytearray(BUFFER_BYTES)
        self.view = memoryview(self.data)
        self.array = np.frombuffer(self.view, np.uint8)

    def open_account(self, peer: str, give_way: Callable[[], None]) -> None:
        """Take memory in the name of ``peer`` from now on; before anything is received."""
        self._account = self._budget.open(peer, give_way)

    def open_beside(self) -> Inbox:
        """Return an empty inbox of the same connection, which takes memory from the same account."""
        inbox = Inbox(self._budget)
        inbox._account = self._account
        return inbox

    def share_account(self, other: Inbox) -> None:
        """Take memory from the account of another inbox of this connection; before anything is received."""
        self._account = other._account

    def append(self, data: Bytes) -> bool:
        """Add bytes after the unread ones. Return whether memory was left for them."""
        if self.at == self.have:
            self.at = self.have = 0
        wanted, size = self.have - self.at + len(data), len(self.view)
        if self.have + len(data) > size:
            while size < wanted:
                size *= 2
            if not self._resize(size):
                return False
        end = self.have + len(data)
        self.view[self.have : end] = data
        self.have = end
        return True

    def hold_elsewhere(self, size_bytes: int) -> bool:
        """Count this much memory, instead of the amount counted before, for bytes that are on their way here.

        Return whether this much is left; if not, the amount counted before stays. It is counted as if it were in a
        buffer, which grows in large steps: a peer's share of the memory bounds these.
        """
        if size_bytes > BUFFER_BYTES:
            size_bytes = 1 << (size_bytes - 1).bit_length()
        more = size_bytes - self._elsewhere_bytes
        if more > 0 and not self._account.take(more):
            return False
        if more < 0:
            self._account.give(-more)
        self._elsewhere_bytes = size_bytes
        return True

    @property
    def holds_small_piece(self) -> bool:
        """Whether what is not parsed yet is so little that its client may send the rest in a small piece too."""
        return 0 < self.have - self.at <= PIECE_BYTES_MAX

    @property
    def unread(self) -> memoryview:
        """Return what was received and is not parsed yet."""
        return self.view[self.at : self.have]

    @property
    def full(self) -> bool:
        """Whether nothing more can be received before something is read."""
        return self.have == len(self.view)

    def make_room(self, whole: bool) -> bool:
        """After reading: make room for more. False if memory for requests is used up.

        ``whole``: a whole request waits at ``at``, so that no room is needed after it. Bytes that wait are moved to the
        front when at least as many were read: else each short turn would move all that the buffer has.
        """
        if self.at == self.have:
            self.at = self.have = 0
            size = len(self.view)
            if self.is_large and (size > BUSY_BUFFER_BYTES_MAX or not self._budget.ample):
                self._resize(BUFFER_BYTES)
        elif self.have == len(self.view):
            if whole:
                return 2 * self.at < self.have or self._resize(self.have)
            return self._resize(self.have if self.at else 2 * self.have)
        return True

    def drop(self) -> None:
        """Forget everything and give the memory back."""
        self.at = self.have = 0
        self.hold_elsewhere(0)
        self._resize(BUFFER_BYTES)

    def close(self) -> None:
        """Hold no memory any more, nor the connection: nothing is received any more."""
        if len(self.view) > BUFFER_BYTES:
            self.drop()
        self.at = self.have = 0
        self._account.close()
        self.data = bytearray()
        self.view = memoryview(self.data)
        self.array = _NO_BYTES

    def _resize(self, size_bytes: int) -> bool:
        """Continue in another buffer. Return False, and keep this one, if no memory is left for it.

        The present buffer exists until its bytes are copied, so that both are counted until then. Buffers of the size
        that a connection begins with are never counted.
        """
        old_bytes = len(self.view)
        beside_bytes = old_bytes if size_bytes > BUFFER_BYTES else 0
        more = size_bytes - old_bytes + beside_bytes
        if more > 0 and not self._account.take(more):
            return False
        if more < 0:
            self._account.give(-more)
        unread = self.view[self.at : self.have]
        try:
            self.data = bytearray(size_bytes)
        except MemoryError:
            self._account.give(more)
            return False
        fresh = memoryview(self.data)
        fresh[: len(unread)] = unread
        self.at, self.have = 0, len(unread)
        self.is_large = size_bytes > IDLE_BUFFER_BYTES_MAX
        self.view, self.array = fresh, np.frombuffer(fresh, np.uint8)
        if beside_bytes:
            self._account.give(beside_bytes)
        return True


def no_progress_error() -> RuntimeError:
    """Return what a loop over received bytes raises after a step that read none of them.

    Such a loop would hold the event loop for ever: asyncio closes the connection instead, with a traceback in the log.
    """
    return RuntimeError("a step over received bytes read none of them; the connection is closed")
