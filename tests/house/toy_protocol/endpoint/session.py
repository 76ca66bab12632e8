"""The toy over a connection: one frame, one response, in order. Publishes may wait for the disk side by side."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from lading.broker.core.pending_append import Append
from lading.endpoints.base.carrying import Carrying
from lading.endpoints.base.deadlines import Stage
from lading.endpoints.base.responses import Slot
from lading.endpoints.base.services import Services
from lading.endpoints.base.session import ConnectionHandle, ProtocolSession, ReceiveResult, SessionLimits
from lading.model.errors import LadingError, MalformedMessage

from ..dialect.commands import HEAD, PublishCommand, frame_bytes, pack_frame, parse_command, parse_frame
from .consume import answer_read
from .publish import create, publish

UNANSWERED_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class ToyHandlers:
    """What answers the requests of all sessions."""

    name: str
    services: Services
    carrying: Carrying


class ToySession(ProtocolSession):
    """One client."""

    limits = SessionLimits(unanswered_max=UNANSWERED_MAX, write_buffer_bytes=256 << 10)

    def __init__(self, handlers: ToyHandlers, connection: ConnectionHandle) -> None:
        super().__init__(connection)
        self._handlers = handlers
        self._broker = handlers.services.broker

    def receive(self, now_us: int) -> ReceiveResult:
        inbox, unanswered = self.inbox, self.responses.waiting
        while inbox.have - inbox.at >= HEAD.size:
            head = bytes(inbox.view[inbox.at : inbox.at + HEAD.size])
            try:
                start = inbox.at + HEAD.size
                end = start + frame_bytes(head)
                if end > inbox.have:
                    break
                if self.is_blocked or self.is_congested or len(unanswered) >= UNANSWERED_MAX:
                    return ReceiveResult.WAIT
                facts, sent = parse_frame(head, bytes(inbox.view[start:end]))
            except MalformedMessage as error:
                self._fail_framing(error)
                break
            self.requests_count += 1
            if self.requests_count == 1:
                self.connection.settle()
            inbox.at = end
            self._answer(facts, sent, now_us)
        return ReceiveResult.DONE

    def refuse_memory(self) -> None:
        self._fail_framing(MalformedMessage("there is no memory for a request of this size"))

    def lose(self) -> None:
        if self.inbox.have > self.inbox.at:
            self.connection.count_dropped("truncated")

    def stage(self) -> Stage:
        if self.is_ended or self.is_congested or self.responses.waiting:
            return Stage.BUSY
        if self.inbox.have > self.inbox.at:
            return Stage.PARTIAL if self.requests_count else Stage.FIRST
        return Stage.IDLE

    def _answer(self, facts: dict[str, Any], sent: bytes, now_us: int) -> None:
        try:
            command = parse_command(facts)
            if not isinstance(command, PublishCommand):
                self.responses.add((pack_frame(*answer_read(self._broker, self._handlers.carrying, command)),))
            elif command.create:
                create(self._broker, command, now_us)
                self.responses.add((pack_frame({}),))
            else:
                append = publish(self._broker, command, sent, now_us)
                append.add_done_callback(partial(self._acknowledge, self.responses.slot()))
        except LadingError as error:
            self.responses.add((_error_frame(error),))
        if self._broker.appender.congested:
            self.connection.wait_for_disk()

    def _acknowledge(self, slot: Slot, append: Append) -> None:
        if append.error is None:
            self._handlers.services.metrics.messages_in.values[(self._handlers.name,)] += append.count
            slot.fill((pack_frame({"base_offset": append.base_offset}),))
        else:
            slot.fill((_error_frame(append.error),))

    def _fail_framing(self, error: MalformedMessage) -> None:
        """Framing is lost: say it, and close when what came before is answered."""
        self.connection.count_dropped("malformed")
        self.inbox.at = self.inbox.have = 0
        self.lingers = True
        self.responses.add((_error_frame(error),))
        self.end()


def _error_frame(error: LadingError) -> bytes:
    return pack_frame({"error": str(error), "reason": type(error).__name__})
