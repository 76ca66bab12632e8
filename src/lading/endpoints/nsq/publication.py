"""A publication of one client or of several: from the log's word on it to what all of them are answered."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, Protocol

from ...broker.core.callbacks import ignore
from ...dialects.nsq import commands
from ...dialects.nsq.commands import ERROR, RESPONSE, frame
from ...dialects.nsq.errors import NsqProtocolError, fault_of

if TYPE_CHECKING:
    from ...broker.core.pending_append import Append

OK: Final = frame(RESPONSE, commands.OK)


class PublicationOwner(Protocol):
    """A client that publishes, as publications see it."""

    @property
    def waiting(self) -> Collection[object]:
        """What it has asked and is not answered yet."""

    def acknowledge(self) -> None:
        """One of its publications is done: answer what can be answered now."""

    def abort(self) -> None:
        """Close its connection at once."""


class Publication:
    """Messages on their way to the disk, and what their publishers are answered then."""

    __slots__ = (
        "answers", "append", "commands_count", "done", "end", "failure", "messages_count", "on_answered", "owners",
    )  # fmt: skip

    def __init__(
        self,
        failure: str,
        answers: bytes = OK,
        commands_count: int = 1,
        end: int = 0,
        *,
        on_answered: Callable[[], None] = ignore,
    ) -> None:
        """``failure`` is the error code if the log does not take the messages."""
        self.failure = failure
        self.answers = answers
        """Frames for each owner, when the publication is done."""
        self.commands_count = commands_count
        """Commands of each owner in it."""
        self.end = end
        """Where the next command begins."""
        self.append: Append | None = None
        self.messages_count = 0
        self.done = False
        """Whether the messages last, or have not happened."""
        self.owners: list[PublicationOwner] = []
        self.on_answered = on_answered

    def settle(self, append: Append) -> None:
        """Note what became of the messages."""
        self.finish(None if append.error is None else fault_of(append.error, self.failure))

    def finish(self, fault: NsqProtocolError | None) -> None:
        """Answer all owners: the messages last, or have not happened."""
        if fault is not None:
            self.answers = frame(ERROR, str(fault).encode(errors="replace")) * self.commands_count
        self.done = True
        for owner in self.owners:
            owner.acknowledge()
        self.on_answered()
