"""Sessions of Iggy's clients: what both framings share. The first bytes of a connection show its framing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...model.errors import Reason, Refusal
from ..base.deadlines import Stage
from ..base.responses import Bytes
from ..base.session import ConnectionHandle, ProtocolSession, SessionLimits
from .clients import Client
from .generations import frame_bytes_of

if TYPE_CHECKING:
    from ...broker.iggy.groups import IggyGroups
    from .clients import Clients

REQUESTS_PER_TURN: Final = 64
"""Requests of one connection, also those that cost nothing, before others have their turn."""
COMMANDS_PER_TURN: Final = 8
"""Commands other than sends and polls that are handled before others have their turn."""
COMMAND_BYTES_INLINE: Final = 4 << 10
"""A longer command is parsed by a worker: rights in 100,000 streams, a megabyte, kept the loop for 0.8 s."""
COMMAND_BYTES_MAX: Final = 1 << 20
"""The size limit of a request other than a send: its rows become fifty times as much memory."""
UNANSWERED_MAX: Final = 64
"""Sends of one connection that may wait for the disk; more begin when some of them are completed."""


def is_long_command(size_bytes: int) -> bool:
    """Return whether a worker parses a command of this size. Raises Refusal if it is too large."""
    if size_bytes > COMMAND_BYTES_MAX:
        raise Refusal(
            Reason.REQUEST_TOO_LARGE,
            f"a command of {size_bytes} bytes; the limit is {COMMAND_BYTES_MAX} for all but messages; send it in parts",
        )
    return size_bytes > COMMAND_BYTES_INLINE


class ClientSession(ProtocolSession):
    """One client. Requests are handled one after another, except that several sends may wait for the disk at once."""

    limits = SessionLimits(
        unanswered_max=UNANSWERED_MAX,
        write_buffer_bytes=256 << 10,
        joined_bytes=(8 << 10) + 12,
        # a response to a poll is bounded by a setting and is sent whole
        piece_bytes=1 << 62,
    )

    def __init__(self, connection: ConnectionHandle, clients: Clients, groups: IggyGroups) -> None:
        super().__init__(connection)
        self._clients = clients
        self._groups = groups
        self._client: Client | None = None
        """None until ``begin``."""
        self._is_pending = False
        """The response to a poll or a command comes later; the requests after it wait."""
        self._commands_in_turn = 0
        """Commands handled since others had their turn."""

    def is_one_request(self, received: Bytes) -> bool:
        return frame_bytes_of(received) == len(received)

    def lose(self) -> None:
        if self.inbox.have > self.inbox.at:
            self.connection.count_dropped("truncated")
        if self._client is not None:
            self._clients.remove(self._client)
            self._client.forget_login()
            self._groups.leave_all(self._client.id)

    def stage(self) -> Stage:
        if self.is_ended or self.is_congested or self.is_resting or self.responses.waiting:
            return Stage.BUSY
        if self.inbox.have > self.inbox.at:
            return Stage.PARTIAL if self.requests_count else Stage.FIRST
        # a client may connect long before its first request
        return Stage.IDLE

    @property
    def is_busy(self) -> bool:
        waits = self.inbox.have > self.inbox.at and (self.is_blocked or self.is_congested or self.is_resting)
        return waits or not self.responses.is_empty
