"""Membership in a consumer group of an Iggy server, as ``transports.interface.Membership`` wants it.

Groups of servers up to 0.0.40 are numbers: one called by a decimal number is that group, one with another name the
group of the name's CRC-32. Later servers know groups by names. The server knows only which partitions a member has.
Positions are stored as those of a single consumer made for the group (``dialects.iggy.classic.group_keeper``);
positions that other clients stored for the group itself are read too, and the higher one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from ...dialects.iggy.classic import commands as c
from ...dialects.iggy.classic.group_keeper import group_number, keeper_number
from ...dialects.iggy.classic.primitives import (
    ConsumerIdentifier,
    ConsumerKind,
    Identifier,
    PollingKind,
    Strategy,
)
from ...dialects.iggy.classic.releases import Release
from ...dialects.iggy.classic.responses import ClientDetails, GroupDetails, StoredOffset
from ...dialects.iggy.current.commands import GroupAssignment, SyncGroup
from ...model.errors import Reason, Refusal, RemoteError
from ..interface import Position
from .polled import Polled, parse_poll_response
from .socket import IggySocket, Request

StreamTopic = tuple[str, str]
"""Stream and topic, by their own names."""

_MISSING: Final = (5000, 5003)
_EXISTING: Final = (5001, 5004)
"""Error codes for a group that does not exist, or exists already; since groups have names they have two codes for each.
"""


class IggyMembership:
    """A member with a connection of its own, because to the server the connection is the member."""

    is_rebalancing = False
    """The server does not notify members of a change: they poll for it."""

    def __init__(self, connection: IggySocket, group: str, topics: Mapping[str, StreamTopic]) -> None:
        self._socket = connection
        self._name = group
        self._number = group_number(group)
        self._keeper = ConsumerIdentifier(ConsumerKind.CONSUMER, keeper_number(group))
        self._topics = dict(topics)
        self._left = False
        self._joined_on = 0
        self._member = 0
        self.generation = 0
        self.partitions: list[tuple[str, int]] = []
        self._join()

    def heartbeat(self) -> bool:
        """Read the assignment again, after a new join if the connection broke; True if it changed."""
        before = self.generation
        self._look()
        return self.generation != before

    def position(self, topic: str, partition: int) -> Position | None:
        """Return the offset after the last consumed message, None if nothing was stored."""
        keeper = self._fetch_stored_offset(lambda _release: self._keeper, topic, partition)
        stored = keeper, self._fetch_stored_offset(self._consumer_for, topic, partition)
        consumed = max((offset for offset in stored if offset is not None), default=None)
        if consumed is None:
            return None
        if consumed or self._socket.release.is_missing_empty:
            return Position(consumed + 1)
        return Position(1) if self._zero_is_stored(topic, partition) else None

    def store(self, topic: str, partition: int, position: Position) -> None:
        """Store the position; Refusal STALE_GENERATION after the partition went to another member."""
        self._look()
        if (topic, partition) not in self.partitions:
            sentence = f"partition {partition} of {topic!r} went to another member of the group"
            raise Refusal(Reason.STALE_GENERATION, sentence)
        if position.offset > 0:
            place = self._topics[topic]
            self._socket.ask(c.StoreOffset(self._keeper, *place, partition + 1, position.offset - 1))

    def poll_next(self, topic: str, count: int, *, auto_commit: bool = False) -> Polled:
        """Poll the next messages of the member's partition whose turn it is, by the group's position on the server.

        The protocol of servers up to 0.0.40 does not report which partition that was.
        """
        place, following = self._topics[topic], Strategy(PollingKind.NEXT)
        body = self._socket.request(
            lambda release: c.PollMessages(self._consumer_for(release), *place, 0, following, count, auto_commit),
            again=not auto_commit,
        )
        return self._parse_polled(body)

    def leave(self) -> None:
        """Give the partitions back; further calls do nothing."""
        if not self._left:
            self._left, self.partitions = True, []
            # a leave that does not arrive does no harm: the server drops the member with the connection
            with suppress(RemoteError):
                for place in self._topics.values():
                    self._ask_of_group(c.LeaveGroup, place, again=False)
            self._socket.close()

    def _identifier_for(self, release: Release) -> Identifier:
        return self._name if release.has_names else self._number

    def _consumer_for(self, release: Release) -> ConsumerIdentifier:
        return ConsumerIdentifier(ConsumerKind.GROUP, self._identifier_for(release))

    def _ask_of_group(
        self, command: Callable[[str, str, Identifier], Request], place: StreamTopic, *, again: bool = True
    ) -> Any:
        return self._socket.ask(lambda release: command(*place, self._identifier_for(release)), again=again)

    def _join(self) -> None:
        # first, so that a connection that breaks meanwhile is joined on again
        self._socket.ask(c.Ping())
        self._joined_on = self._socket.connections
        for place in self._topics.values():
            try:
                self._ask_of_group(c.JoinGroup, place)
            except RemoteError as refusal:
                if refusal.code not in _MISSING:
                    raise
                self._create(place)
                self._ask_of_group(c.JoinGroup, place)
        me: ClientDetails = self._socket.ask(c.Me())
        self._member = me.client.id
        self._update_assignment()

    def _create(self, place: StreamTopic) -> None:
        def command(release: Release) -> c.CreateGroup:
            # servers that choose numbers by themselves do not take one
            return c.CreateGroup(*place, self._number, self._name if release.has_names else None)

        try:
            self._socket.ask(command, again=False)
        except RemoteError as refusal:
            # another member may be faster
            if refusal.code not in _EXISTING:
                raise

    def _look(self) -> None:
        self._socket.ask(c.Ping())
        if self._socket.connections != self._joined_on:
            self._join()
        else:
            self._update_assignment()

    def _update_assignment(self) -> None:
        found: list[tuple[str, int]] = []
        for topic, place in self._topics.items():
            held = self._fetch_held_partitions(place)
            if held is None:
                self._ask_of_group(c.JoinGroup, place)
                held = self._fetch_held_partitions(place) or ()
            found += [(topic, number - 1) for number in sorted(held)]
        if found != self.partitions or not self.generation:
            self.partitions = found
            self.generation += 1

    def _fetch_held_partitions(self, place: StreamTopic) -> Sequence[int] | None:
        """Return the partitions of this member, counted from 1; None if it is not in the group any more."""
        held: GroupDetails | GroupAssignment | None = self._socket.ask(
            lambda release: (SyncGroup if SyncGroup in release.commands.row_by_request else c.GetGroup)(
                *place, self._identifier_for(release)
            )
        )
        if not isinstance(held, GroupDetails):
            return None if held is None else held.partitions
        return next((member.partitions for member in held.members if member.id == self._member), None)

    def _fetch_stored_offset(
        self, consumer: Callable[[Release], ConsumerIdentifier], topic: str, partition: int
    ) -> int | None:
        stored: StoredOffset | None = self._socket.ask(
            lambda release: c.GetOffset(consumer(release), *self._topics[topic], partition + 1)
        )
        return None if stored is None else stored.offset

    def _zero_is_stored(self, topic: str, partition: int) -> bool:
        """Return whether a stored 0 means that message 0 was consumed, and not that nothing was stored.

        A poll of ``next`` distinguishes the two.
        """
        place, number = self._topics[topic], partition + 1
        following = self._poll(place, number, PollingKind.NEXT)
        return following.first == 1 if following.count else self._poll(place, number, PollingKind.FIRST).count == 1

    def _poll(self, place: StreamTopic, number: int, kind: PollingKind) -> Polled:
        command = c.PollMessages(self._keeper, *place, number, Strategy(kind), 1, False)
        return self._parse_polled(self._socket.request(command, again=True))

    def _parse_polled(self, body: bytearray) -> Polled:
        return parse_poll_response(body, self._socket.release)
