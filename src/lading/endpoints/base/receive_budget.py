"""Memory for requests that are still arriving, shared by all connections, with a share for each peer address.

When it is used up, the incomplete request that has waited longest is dropped, of the peer that holds most. Small
buffers have a reserve that large ones cannot use up. So a client that sends many halves of large requests does
not keep others from sending whole ones, not even at its address. Threads: event loop only.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Final

RESERVE_BYTES: Final = 64 << 20
"""The memory, at most an eighth of all, that is reserved for small buffers."""
SMALL_BYTES: Final = 1 << 20
"""A step of at most this much may be taken from the reserve."""
GRACE_S: Final = 5.0
"""A request that began less than this ago does not give way: it may be about to be whole."""


class ReceiveAccount:
    """The part of the budget that one connection holds."""

    __slots__ = ("_budget", "_give_way", "held_bytes", "peer", "since_s")

    def __init__(self, budget: ReceiveBudget, peer: str, give_way: Callable[[], None] | None) -> None:
        self._budget = budget
        self._give_way = give_way
        self.peer = peer
        self.held_bytes = 0
        self.since_s = 0.0
        """When it began to hold anything."""

    def take(self, size_bytes: int) -> bool:
        """Return whether ``size_bytes`` more are granted; what was granted is given back with ``give``."""
        return self._budget.grant(self, size_bytes)

    def give(self, size_bytes: int) -> None:
        """Return what ``take`` granted."""
        self._budget.reclaim(self, size_bytes)

    def close(self) -> None:
        """Drop the reference to the connection, which has ended and holds nothing."""
        self._give_way = None

    def give_way(self) -> bool:
        """Give everything back, at once. Return whether the connection can."""
        if self._give_way is None:
            return False
        held_bytes = self.held_bytes
        self._give_way()
        return self.held_bytes < held_bytes


class ReceiveBudget:
    """The memory itself; connections take it through accounts."""

    def __init__(
        self, bytes_max: int, peer_share: float = 1.0, *, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        """``peer_share``: the share of ``bytes_max`` that one peer address may hold in large buffers."""
        self._bytes_max = self.left_bytes = 0
        self.set_limits(bytes_max, peer_share)
        self._clock_s = clock_s
        self._holding: dict[ReceiveAccount, None] = {}
        """Accounts that hold something, by when they began to."""
        self._held_bytes: defaultdict[str, int] = defaultdict(int)
        """The bytes that each peer holds."""
        self._anonymous = ReceiveAccount(self, "", None)

    def set_limits(self, bytes_max: int, peer_share: float) -> None:
        """Have other limits count from now on; what is held stays, and nothing is granted while that is too much."""
        self.left_bytes += bytes_max - self._bytes_max
        self._bytes_max = bytes_max
        self._peer_bytes_max = int(peer_share * bytes_max)

    def open(self, peer: str = "", give_way: Callable[[], None] | None = None) -> ReceiveAccount:
        """Return an account for a connection of ``peer``. ``give_way`` gives back all that it holds, if it can."""
        return ReceiveAccount(self, peer, give_way)

    def acquire(self, size_bytes: int) -> bool:
        """Take for a connection without an account, which never gives way."""
        return self._anonymous.take(size_bytes)

    def release(self, size_bytes: int) -> None:
        """Return what ``take`` granted."""
        self._anonymous.give(size_bytes)

    @property
    def ample(self) -> bool:
        """Whether half of it is left: a connection that needed a large buffer may then keep it for the next request."""
        return 2 * self.left_bytes > self._bytes_max

    def grant(self, account: ReceiveAccount, size_bytes: int) -> bool:
        """See ``ReceiveAccount.take``."""
        while not self._has_room(account, size_bytes):
            if not self._make_room(account, size_bytes):
                return False
        if not account.held_bytes:
            account.since_s = self._clock_s()
            self._holding[account] = None
        account.held_bytes += size_bytes
        self._held_bytes[account.peer] += size_bytes
        self.left_bytes -= size_bytes
        return True

    def reclaim(self, account: ReceiveAccount, size_bytes: int) -> None:
        """See ``ReceiveAccount.give``."""
        account.held_bytes -= size_bytes
        self.left_bytes += size_bytes
        self._held_bytes[account.peer] -= size_bytes
        if not self._held_bytes[account.peer]:
            del self._held_bytes[account.peer]
        if not account.held_bytes:
            self._holding.pop(account, None)

    def _has_room(self, account: ReceiveAccount, size_bytes: int) -> bool:
        if size_bytes <= SMALL_BYTES:
            return size_bytes <= self.left_bytes
        return size_bytes <= self.left_bytes - self._reserve_bytes and not self._is_over_share(account, size_bytes)

    @property
    def _reserve_bytes(self) -> int:
        return min(RESERVE_BYTES, self._bytes_max // 8)

    def _is_over_share(self, account: ReceiveAccount, size_bytes: int) -> bool:
        if account is self._anonymous:
            return False
        return self._held_bytes.get(account.peer, 0) + size_bytes > self._peer_bytes_max

    def _make_room(self, account: ReceiveAccount, size_bytes: int) -> bool:
        """Drop the oldest half request: of the same peer if its share is used up, else of the peer that holds most."""
        if size_bytes > SMALL_BYTES and self._is_over_share(account, size_bytes):
            peers = [account.peer]
        else:
            peers = sorted(self._held_bytes, key=lambda peer: self._held_bytes[peer], reverse=True)
        latest_s = self._clock_s() - GRACE_S
        for peer in peers:
            for other in list(self._holding):
                if other.peer == peer and other is not account and other.since_s <= latest_s and other.give_way():
                    return True
        return False
