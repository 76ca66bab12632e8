"""Threads that keep members of Kafka's consumer groups: one Kafka member for each Iggy client in a group.

The coordinator of the cluster assigns partitions. A member that loses some confirms it after its gateway has stored the
positions, and only then does another member get them; members that keep their partitions continue to read meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from ..model.errors import LadingError
from ..transports.kafka.consumer_member import JOIN, MemberLost, leave_group, send_heartbeat
from .cluster_threads import ClusterThread, ThreadGroup

if TYPE_CHECKING:
    from ..transports.kafka.cluster import KafkaCluster
    from ..transports.kafka.transport import KafkaTransport

LOG: Final = logging.getLogger("lading.store")
HEARTBEAT_S: Final = 1.0
"""The heartbeat interval of members while a thread has few of them; it delays news of changes by others."""
MEMBERS_A_SECOND: Final = 500
"""Heartbeats of a thread in a second; with more members each of them sends fewer."""
SESSION_S: Final = 45.0
"""Kafka's smallest session time-out: other members may get the partitions of a member that is silent for this long."""
RETRY_S: Final = 1.0
JOIN_WAIT_S: Final = 3.0
"""How long a client that joins waits for a first partition: Iggy's server assigns some before it responds."""
ASSIGNMENT_S: Final = 0.1
"""The interval of heartbeats of a member that waits for its assignment."""
ID_SEPARATOR: Final = "."
"""The separator between the number of an Iggy client and the rest of its member id."""

Assigned = Callable[[frozenset[int], Callable[[], None]], None]
"""Takes the partitions of a member, and the function to call when the lost ones are released."""
Joined = Callable[[LadingError | None], None]


class GroupMember:
    """One member; methods are for the event loop."""

    def __init__(
        self, group: str, topic: tuple[str, bytes], client: int, on_assigned: Assigned, on_joined: Joined
    ) -> None:
        self.group = group
        self.topic = topic
        """The topic's name and id."""
        self.id = f"{client}{ID_SEPARATOR}{uuid4()}"
        self.on_assigned = on_assigned
        self.on_joined: Joined | None = on_joined
        # used by the thread, under its condition
        self.epoch = JOIN
        self.assigned: frozenset[int] = frozenset()
        self.is_released = False
        """Whether its lost partitions are released, which the next heartbeat confirms."""
        self.is_leaving = False
        self.due_s = 0.0
        self.heard_s = time.monotonic()
        self.joined_by_s = 0.0
        """Until when the client that joins waits; 0 before the first response."""


class GroupMembers:
    """The threads."""

    def __init__(
        self,
        open_transport: Callable[[], KafkaTransport],
        post: Callable[[Callable[[], None]], None],
        threads_count: int,
    ) -> None:
        self._lock = Lock()
        self._members: dict[str, dict[GroupMember, None]] = {}
        self._threads = ThreadGroup(partial(_MemberThread, open_transport, post), threads_count)

    def join(self, member: GroupMember) -> None:
        """Have a member join its group, and keep it there."""
        with self._lock:
            self._members.setdefault(member.group, {})[member] = None
        self._thread_of(member).add(member)

    def leave(self, member: GroupMember) -> None:
        """Have a member leave its group."""
        with self._lock:
            of_group = self._members.get(member.group, {})
            of_group.pop(member, None)
            if not of_group:
                self._members.pop(member.group, None)
        self._thread_of(member).remove(member)

    def find_identity(self, group: str) -> tuple[str, int]:
        """Return id and epoch of a member here, with which offsets of a group are committed; from any thread.

        It is ("", -1) if none has joined, which Kafka accepts for a group without members.
        """
        with self._lock:
            for member in self._members.get(group, ()):
                if member.epoch > JOIN:
                    return member.id, member.epoch
        return "", -1

    def has_members(self, group: str) -> bool:
        """Return whether a member of a group is here, or joins; from any thread."""
        with self._lock:
            return group in self._members

    def close(self, timeout_s: float) -> None:
        """Leave all groups, so that members at other gateways get the partitions at once."""
        self._threads.close(timeout_s)

    def _thread_of(self, member: GroupMember) -> _MemberThread:
        # one thread has all members of a group, so that a change caused by one of them reaches the others at once
        return self._threads.choose(member.group)


class _MemberThread(ClusterThread):
    def __init__(
        self, open_transport: Callable[[], KafkaTransport], post: Callable[[Callable[[], None]], None]
    ) -> None:
        super().__init__("lading-members", open_transport, post)
        self._members: dict[GroupMember, None] = {}
        self._problem: str | None = None

    # -- for the event loop

    def add(self, member: GroupMember) -> None:
        with self._changed:
            self._members[member] = None
            self._changed.notify()

    def remove(self, member: GroupMember) -> None:
        with self._changed:
            member.is_leaving, member.due_s = True, 0.0
            self._changed.notify()

    def end(self) -> None:
        with self._changed:
            for member in self._members:
                member.is_leaving, member.due_s = True, 0.0
        super().end()

    def _release(self, member: GroupMember) -> None:
        """Note that the lost partitions of a member are not read any more."""
        with self._changed:
            member.is_released, member.due_s = True, 0.0
            self._changed.notify()

    # -- the thread

    def work(self, transport: KafkaTransport) -> None:
        while (due := self._wait_for_due()) is not None:
            for member in due:
                if member.is_leaving:
                    self._leave(transport.cluster, member)
                else:
                    self._send_heartbeat(transport.cluster, member)

    def _wait_for_due(self) -> list[GroupMember] | None:
        """Return the members that have something to send, or None at the end."""
        with self._changed:
            while True:
                now_s = time.monotonic()
                due = [member for member in self._members if member.due_s <= now_s]
                if due:
                    return due
                if self._is_ending:
                    return None
                soonest_s = min((member.due_s for member in self._members), default=None)
                self._changed.wait(None if soonest_s is None else soonest_s - now_s)

    def _leave(self, cluster: KafkaCluster, member: GroupMember) -> None:
        with self._changed:
            self._members.pop(member, None)
        if member.epoch != JOIN:
            # the coordinator removes a silent member by itself, only later
            with suppress(LadingError, OSError):
                leave_group(cluster, member.group, member.id)
            self._wake_members(member.group)

    def _send_heartbeat(self, cluster: KafkaCluster, member: GroupMember) -> None:
        with self._changed:
            confirmed = member.assigned if member.is_released else None
            member.is_released = False
            # a response that makes the member due sooner arrives later than this
            member.due_s = time.monotonic() + max(HEARTBEAT_S, len(self._members) / MEMBERS_A_SECOND)
        error: LadingError | None = None
        try:
            result = send_heartbeat(cluster, member.group, member.id, member.epoch, member.topic, confirmed)
        except MemberLost:
            self._join_again(member)
            return
        except Exception as failure:
            error = failure if isinstance(failure, LadingError) else LadingError(str(failure))
            self._fail(member, failure, had=confirmed)
        else:
            self._problem = None
            self._take(member, result.epoch, result.partitions)
        if member.on_joined is None:
            return
        now_s = time.monotonic()
        member.joined_by_s = member.joined_by_s or now_s + JOIN_WAIT_S
        if error is not None or member.assigned or now_s >= member.joined_by_s:
            on_joined, member.on_joined = member.on_joined, None
            self._post(partial(on_joined, error))
        else:
            with self._changed:
                member.due_s = min(member.due_s, now_s + ASSIGNMENT_S)

    def _take(self, member: GroupMember, epoch: int, partitions: frozenset[int] | None) -> None:
        is_changed = epoch != member.epoch
        with self._changed:
            member.epoch, member.heard_s = epoch, time.monotonic()
        if partitions is not None and partitions != member.assigned:
            self._assign(member, partitions)
        elif partitions is not None:
            # the coordinator waits for the confirmation that the member has them
            self._release(member)
        if is_changed:
            self._wake_members(member.group)

    def _assign(self, member: GroupMember, partitions: frozenset[int]) -> None:
        with self._changed:
            member.assigned = partitions
        self._post(partial(member.on_assigned, partitions, partial(self._release, member)))

    def _join_again(self, member: GroupMember) -> None:
        """Join again, as a new member without partitions."""
        with self._changed:
            member.epoch, member.assigned, member.is_released, member.due_s = JOIN, frozenset(), False, 0.0
        self._post(partial(member.on_assigned, frozenset(), _do_nothing))

    def _fail(self, member: GroupMember, failure: Exception, had: frozenset[int] | None) -> None:
        with self._changed:
            member.is_released = member.is_released or had is not None
            member.due_s = time.monotonic() + RETRY_S
            is_over = member.epoch != JOIN and time.monotonic() - member.heard_s > SESSION_S
        if is_over:
            self._join_again(member)
            with self._changed:
                member.due_s = time.monotonic() + RETRY_S
        if self._problem is None:
            fault = None if isinstance(failure, (LadingError, OSError)) else failure
            LOG.warning("members of group %r cannot be kept in it: %s", member.group, failure, exc_info=fault)
        self._problem = str(failure)

    def _wake_members(self, group: str) -> None:
        """Have the other members of a group here send a heartbeat at once."""
        with self._changed:
            for one in self._members:
                if one.group == group and one.epoch != JOIN:
                    one.due_s = 0.0


def _do_nothing() -> None:
    return None
