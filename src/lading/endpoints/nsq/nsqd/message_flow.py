"""Message frames on their way to one subscriber, and when it gets no more of them.

A client that does not read, or whose user has used up a quota, gets no messages; its FIN commands are still read.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ....runtime.metrics import Labels
from ...base.responses import ResponseQueue
from ...base.services import now_us
from ...base.session import ConnectionHandle

if TYPE_CHECKING:
    from ....broker.channels import Subscriber
    from .login import NsqdLogin

ANSWERS_BYTES_MAX: Final = 256 << 10
"""Bytes of responses that may wait for a subscriber that does not read, besides its messages; then its commands wait.
"""


class MessageFlow:
    """The messages that one connection is sent, from its subscription to its end."""

    def __init__(
        self,
        connection: ConnectionHandle,
        responses: ResponseQueue,
        login: NsqdLogin,
        face: str,
        sent_bytes: defaultdict[Labels, float],
    ) -> None:
        self._connection = connection
        self._responses = responses
        self._login = login
        self._labels = (face,)
        self._sent_bytes = sent_bytes
        self._subscriber: Subscriber | None = None
        self._is_blocked = False
        """Whether the client does not read."""
        self._full_bytes = 0
        """Bytes that may be on their way to a client that does not read, before its commands wait."""
        self._held_until_us = 0
        """Until this time the quota lets no message through; 0 if none is held."""

    def start(self, subscriber: Subscriber) -> None:
        """Begin to send this subscriber's messages."""
        self._subscriber = subscriber
        self._tell_subscriber()

    def close(self) -> None:
        """Send nothing more, and drop the reference to the subscriber: the connection has ended."""
        self._subscriber = None

    def deliver(self, frames: NDArray[np.uint8]) -> None:
        """Send message frames, and hold later ones for as long as the quota requires."""
        if self._subscriber is None:
            return
        self._sent_bytes[self._labels] += frames.size
        self._responses.push(frames.data)
        principal = self._login.principal
        if principal is not None and principal.meter is not None:
            delay_us = principal.meter.take_read(frames.size, now_us())
            if delay_us:
                self._hold(delay_us)

    def block(self, is_blocked: bool) -> None:
        """Note whether the client does not read its messages."""
        if is_blocked:
            self._full_bytes = self._connection.unsent_bytes() + ANSWERS_BYTES_MAX
        self._is_blocked = is_blocked
        self._tell_subscriber()

    def is_overfull(self) -> bool:
        """Return whether a blocked client must read before its commands are read: its responses may not pile up.

        A subscriber may continue for a while, since FIN has no response.
        """
        return self._subscriber is None or self._connection.unsent_bytes() > self._full_bytes

    def _tell_subscriber(self) -> None:
        if self._subscriber is not None:
            self._subscriber.blocked = self._is_blocked or self._held_until_us > 0

    def _hold(self, delay_us: int) -> None:
        """Hold messages for this long, unless a longer hold is in effect."""
        is_timed = self._held_until_us > 0
        self._held_until_us = max(self._held_until_us, now_us() + delay_us)
        if not is_timed:
            self._tell_subscriber()
            self._connection.call_later(delay_us, self._release)

    def _release(self) -> None:
        left_us = self._held_until_us - now_us()
        if left_us > 0:
            # more was delivered before the hold, or the timer's clock is a little ahead
            self._connection.call_later(left_us, self._release)
            return
        self._held_until_us = 0
        self._tell_subscriber()
