"""Members of native groups, as the admin endpoint keeps them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress

from ...model.errors import Reason, Refusal, Unreachable
from ...model.names import flat_name
from ..interface import Position
from .http import AdminHttp

PositionPath = Callable[[str, str, int], tuple[str | int, ...]]
"""Path of a group's position in a topic and partition."""


class LadingMembership:
    """A member of a native group; the broker removes it after the session time-out without a heartbeat."""

    is_rebalancing = False
    """Always false: the broker reports a change in its response to a heartbeat."""

    def __init__(self, http: AdminHttp, position_path: PositionPath, group: str, topics: Sequence[str]) -> None:
        self._http = http
        self._position_path = position_path
        self._group = group
        self._topics = list(topics)
        self._member: str | None = secrets.token_hex(16)
        self.generation = -1
        self.partitions: list[tuple[str, int]] = []
        self._call("join")

    def heartbeat(self) -> bool:
        """Report to the broker that this member is alive; return True if the assignment changed."""
        before = self.generation
        try:
            self._call("heartbeat")
        except Refusal as error:
            if error.reason not in (Reason.GROUP_MEMBER_NOT_FOUND, Reason.GROUP_NOT_FOUND, Reason.STALE_GENERATION):
                raise
            self._call("join")
        return self.generation != before

    def position(self, topic: str, partition: int) -> Position | None:
        """Return the group's stored position, or None."""
        found = self._http.get(*self._position_path(self._group, topic, partition)).json()
        if found is None or found.get("offset") is None:
            return None
        return Position(found["offset"], found.get("epoch") or 0)

    def store(self, topic: str, partition: int, position: Position) -> None:
        """Store the group's position. Raises Refusal STALE_GENERATION after the partition went to another member."""
        path = self._position_path(self._group, topic, partition)
        body = {"offset": position.offset, "epoch": position.epoch, "generation": self.generation}
        self._http.request("PUT", *path, again=True, document=body)

    def leave(self) -> None:
        """Give the partitions back; further calls do nothing."""
        if self._member is not None:
            # a leave that does not arrive is harmless: the broker removes a silent member by itself
            with suppress(Refusal, Unreachable):
                self._call("leave")
            self._member, self.partitions = None, []

    def _call(self, what: str) -> None:
        body = {"member": self._member, "topics": self._topics}
        answer = self._http.request("POST", "groups", self._group, what, again=True, document=body).fields()
        self.generation = answer.get("generation", self.generation)
        self.partitions = [(flat_name(stream, topic), number) for stream, topic, number in answer.get("partitions", [])]
