"""A publication of one or more clients: from the result of the append to the responses for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ....broker.core.callbacks import ignore
from ....dialects.nsq import commands
from ....dialects.nsq.commands import ERROR, RESPONSE, frame
from ....dialects.nsq.errors import NsqProtocolError, fault_of

if TYPE_CHECKING:
    from ....broker.core.pending_append import Append
    from ...base.responses import ResponsePlace

OK: Final = frame(RESPONSE, commands.OK)


class Publication:
    """Messages on their way to the disk, and the responses that their publishers get afterwards."""

    __slots__ = (
        "answers", "append", "commands_count", "done", "end", "failure", "messages_count", "on_answered", "slots",
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
        """Frames for each publisher, set when the publication is done."""
        self.commands_count = commands_count
        """How many commands each publisher has in this publication."""
        self.end = end
        """Position of the next command."""
        self.append: Append | None = None
        self.messages_count = 0
        self.done = False
        """Whether the messages are durable, or were refused."""
        self.slots: list[ResponsePlace] = []
        """The places of its publishers' responses, unless these are sent at once."""
        self.on_answered = on_answered

    def settle(self, append: Append) -> None:
        """Note the outcome of the append."""
        self.finish(None if append.error is None else fault_of(append.error, self.failure))

    def finish(self, fault: NsqProtocolError | None) -> None:
        """Respond to all publishers: the messages are durable, or were refused."""
        if fault is not None:
            self.answers = frame(ERROR, str(fault).encode(errors="replace")) * self.commands_count
        self.done = True
        parts = (self.answers,)
        for slot in self.slots:
            slot.fill(parts)
        self.on_answered()
