"""Sending of redriven messages by topic: a topic that takes none, or a message that is too large, holds up no other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..model.errors import LadingError, LimitExceeded, LocalError, Unreachable
from ..transports.topics import UnknownTopic
from .ledger import UNACCEPTED, Ledger, LedgerEntry, MessageIdentity
from .side_effects import require_topic

if TYPE_CHECKING:
    import pyarrow as pa


class RedrivePlan:
    """The topics that a redrive sends to. ``refused`` counts what is not sent, by the sentence that says why."""

    def __init__(self, access: Callable[[str], Mapping[str, Any]]) -> None:
        """``access`` returns the transport options of a server."""
        self.refused: Counter[str] = Counter()
        self._access = access
        self._errors: dict[tuple[str, str], LadingError | None] = {}

    def count_accepted(self, server: str, topic: str, count: int) -> int:
        """Return ``count`` if the topic takes messages; else 0, and they are in ``refused``. Raises Unreachable."""
        error = self._find_error(server, topic)
        if error is None:
            return count
        self.refused[str(error)] += count
        return 0

    def _find_error(self, server: str, topic: str) -> LadingError | None:
        place = server, topic
        if place not in self._errors:
            self._errors[place] = self._look_for_topic(*place)
        return self._errors[place]

    def _look_for_topic(self, server: str, topic: str) -> LadingError | None:
        if not topic:
            return UnknownTopic("the topic that a message came from has an empty name; name another one with --to")
        try:
            require_topic(server, topic, self._access(server))
        except Unreachable:
            raise
        except LadingError as error:
            return error.with_traceback(None)
        return None


class RedriveDelivery(RedrivePlan):
    """Delivers the steps of a redrive."""

    def __init__(
        self, ledger: Ledger, access: Callable[[str], Mapping[str, Any]], on_sent: Callable[[int], None]
    ) -> None:
        """``on_sent`` is called with each number sent."""
        super().__init__(access)
        self._ledger = ledger
        self._on_sent = on_sent

    def send(self, server: str, topic: str, identities: Sequence[MessageIdentity], messages: pa.RecordBatch) -> int:
        """Send messages, whose ``identities`` are in their order, and return how many; the others are in ``refused``.

        The topic is looked for before the ledger is written. Raises Unreachable, and the errors of sending that leave
        open whether messages arrived: the ledger finishes those in the next redrive.
        """
        if not self.count_accepted(server, topic, len(identities)):
            return 0
        entry = self._ledger.begin(server, topic, identities)
        try:
            self._ledger.deliver(entry, [messages], self._access(server))
        except UNACCEPTED as refusal:
            if not isinstance(refusal, LimitExceeded) or len(identities) == 1:
                self.refused[str(refusal)] += len(identities)
                return 0
            # nothing of it was sent: find the message that is too large
            half = len(identities) // 2
            first = self.send(server, topic, identities[:half], messages.slice(0, half))
            return first + self.send(server, topic, identities[half:], messages.slice(half))
        self._on_sent(len(identities))
        return len(identities)

    def finish(self, entry: LedgerEntry, restore: Callable[[], Sequence[pa.RecordBatch]]) -> int:
        """Send what an interrupted redrive had recorded, under the same key, and return how many messages that were.

        An entry whose topic takes no messages is withdrawn, so that they wait again.
        """
        error = self._find_error(entry.server, entry.topic)
        if error is None:
            try:
                self._ledger.deliver(entry, restore(), self._access(entry.server))
            except UNACCEPTED:
                return 0
            self._on_sent(len(entry.messages))
            return len(entry.messages)
        if isinstance(error, UNACCEPTED):
            self._ledger.withdraw(entry)
        else:
            self.refused[str(error)] += len(entry.messages)
        return 0

    def require_any(self, sent: int) -> None:
        """Raise LocalError if messages were refused and none was sent."""
        if self.refused and not sent:
            raise LocalError("; ".join(self.refused))
