"""Membership in a consumer group of a Kafka cluster, by the classic group protocol (kafka.md 3).

A thread with connections of its own keeps the member alive and takes part in every rebalance; the reader's thread is
notified through ``changing``. Partitions are given up before each rebalance (eager rebalancing), so that members of any
client can be in the same group: range, roundrobin and cooperative-sticky are offered.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from ...dialects.kafka import errors
from ...dialects.kafka.assignment import (
    ASSIGNORS,
    PROTOCOL,
    Place,
    encode_assignment,
    encode_subscription,
    parse_assignment,
    parse_subscription,
)
from ...model.errors import LadingError, Reason, Refusal, RemoteError, Unreachable
from ..interface import Position
from .cluster import GROUP, KafkaCluster, Retriable, kafka_error, raise_for_code
from .offsets import to_epoch
from .socket import KafkaSocket

HEARTBEATS_A_SESSION: Final = 3
"""Heartbeats within one session time-out; but at least one every HEARTBEAT_S."""
HEARTBEAT_S: Final = 3.0
TOPICS_S: Final = 30.0
"""Interval at which the leading member checks whether topics have more partitions."""
UNREACHABLE_PAUSE_S: Final = 1.0
GRACE_S: Final = 5.0
"""Time that a response may take beyond the rebalance timeout."""
_GONE: Final = (errors.ILLEGAL_GENERATION, errors.UNKNOWN_MEMBER, errors.REBALANCE_IN_PROGRESS)


@dataclass(frozen=True, slots=True)
class Timing:
    """Times in seconds: a member that sends no heartbeat for ``session_s`` is dropped; one that does not read for
    ``reading_s`` gives its partitions back, and a rebalance waits that long for its members."""

    session_s: float = 45.0
    reading_s: float = 300.0

    @property
    def heartbeat_s(self) -> float:
        """Return the interval of a member's heartbeats."""
        return min(HEARTBEAT_S, self.session_s / HEARTBEATS_A_SESSION)


@dataclass(frozen=True, slots=True)
class _JoinedGroup:
    """Result of one rebalance: our member id and generation, and the partitions to read."""

    member: str
    generation: int
    places: tuple[Place, ...]


class KafkaMembership:
    """A member; its methods are for one thread, the reader's.

    It is created once the group has assigned it partitions, at the latest after ``cluster.timeout_s``: if other members
    release theirs slowly, it waits for them in the background. Raises KafkaError for a group that cannot be joined.
    """

    def __init__(self, cluster: KafkaCluster, group: str, topics: Sequence[str], timing: Timing) -> None:
        self._cluster = cluster
        self._group = group
        self._joined: _JoinedGroup | None = None
        self._left = False
        self.generation = 0
        self.partitions: list[Place] = []
        self._member = _HeartbeatThread(cluster.sibling(), group, topics, timing)
        self._member.start()
        try:
            self._member.wait_for_news(cluster.timeout_s)
            self.heartbeat()
        except BaseException:
            self.leave()
            raise

    @property
    def is_rebalancing(self) -> bool:
        """Whether the group is rebalancing, or has a new assignment that ``heartbeat`` has not returned yet."""
        return self._member.has_change

    def heartbeat(self) -> bool:
        """Note that messages are still read, and release or take over partitions; return True if the assignment
        changed.

        The thread sends the heartbeats to the broker; its errors are raised here.
        """
        joined, changed = self._member.poll_assignment()
        if changed:
            self._joined = joined
            self.partitions = [] if joined is None else list(joined.places)
            self.generation += 1
        return changed

    def position(self, topic: str, partition: int) -> Position | None:
        """Return the group's stored position, or None."""

        def ask(broker: KafkaSocket) -> Position | None:
            row = {"name": topic, "partition_indexes": [partition]}
            answer = broker.ask("OffsetFetch", group_id=self._group, topics=[row], require_stable=True)
            raise_for_code(f"positions of group {self._group!r}", getattr(answer, "error_code", 0) or 0)
            (found,) = answer.topics[0].partitions
            raise_for_code(
                f"the position of group {self._group!r} in {topic!r}, partition {partition}", found.error_code
            )
            if found.committed_offset < 0:
                return None
            return Position(found.committed_offset, to_epoch(found.committed_leader_epoch))

        return self._cluster.at_coordinator(GROUP, self._group, ask)

    def store(self, topic: str, partition: int, position: Position) -> None:
        """Store the group's position. Raises Refusal STALE_GENERATION after the partition went to another member."""
        joined = self._joined
        if joined is None or (topic, partition) not in self.partitions:
            raise self._stale_assignment_error(topic, partition)

        def ask(broker: KafkaSocket) -> int:
            part = {"partition_index": partition, "committed_offset": position.offset, "committed_metadata": ""}
            part["committed_leader_epoch"] = position.epoch - 1
            answer = broker.ask(
                "OffsetCommit", group_id=self._group, generation_id_or_member_epoch=joined.generation,
                member_id=joined.member, topics=[{"name": topic, "partitions": [part]}],
            )  # fmt: skip
            code: int = answer.topics[0].partitions[0].error_code
            if code not in _GONE:
                raise_for_code(f"the position of group {self._group!r} in {topic!r}, partition {partition}", code)
            return code

        if self._cluster.at_coordinator(GROUP, self._group, ask) in _GONE:
            self._member.revoke()
            raise self._stale_assignment_error(topic, partition)

    def leave(self) -> None:
        """Give the partitions back; further calls do nothing."""
        if self._left:
            return
        self._left, self.partitions = True, []
        member = self._member.end()
        if member:
            # a leave that does not arrive is harmless: the broker removes a silent member by itself
            with suppress(LadingError):
                self._cluster.at_coordinator(
                    GROUP,
                    self._group,
                    lambda broker: broker.ask("LeaveGroup", group_id=self._group, member_id=member),
                )

    def _stale_assignment_error(self, topic: str, partition: int) -> Refusal:
        sentence = f"partition {partition} of {topic!r} went to another member of group {self._group!r}"
        return Refusal(Reason.STALE_GENERATION, sentence)


class _HeartbeatThread(threading.Thread):
    """The thread: joins, assigns if it leads the group, sends heartbeats, and joins again after the reader's
    release."""

    def __init__(self, cluster: KafkaCluster, group: str, topics: Sequence[str], timing: Timing) -> None:
        super().__init__(name="lading-group", daemon=True)
        self._cluster = cluster
        self._group = group
        self._topics = frozenset(topics)
        self._timing = timing
        self._changed = threading.Condition()
        # the following attributes are shared, under the condition
        self._ended = False
        self._failed: Exception | None = None
        self._joined: _JoinedGroup | None = None
        self._taken = False
        self._asked_back = False
        self._read_at = time.monotonic()
        # used by the thread alone
        self._id = ""
        self._counts: dict[str, int] | None = None

    # for the reader

    @property
    def has_change(self) -> bool:
        """Whether ``look`` will report a change."""
        return self._asked_back or self._failed is not None or (self._joined is not None and not self._taken)

    def wait_for_news(self, longest_s: float) -> None:
        """Wait for a change, at most for this time."""
        with self._changed:
            self._changed.wait_for(lambda: self.has_change, longest_s)

    def poll_assignment(self) -> tuple[_JoinedGroup | None, bool]:
        """Return the partitions that the reader has from now on, None for none, and whether that is new."""
        with self._changed:
            if self._failed is not None:
                raise self._failed
            self._read_at = time.monotonic()
            if self._asked_back:
                held = self._taken
                self._asked_back = self._taken = False
                self._joined = None
                self._changed.notify_all()
                return None, held
            if self._joined is not None and not self._taken:
                self._taken = True
                return self._joined, True
            return self._joined, False

    def revoke(self) -> None:
        """Note that the partitions were lost, as the reader found out."""
        with self._changed:
            self._asked_back = True

    def end(self) -> str:
        """Stop; return the member id, empty if it has none."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._cluster.interrupt()
        if self.ident is not None:
            self.join(GRACE_S)
        return self._id

    # the thread

    def run(self) -> None:
        """Run until closed or until an error that no retry can fix."""
        try:
            while not self._ended:
                try:
                    joined = self._join()
                    if joined is not None:
                        self._offer(joined)
                        self._heartbeat_until_revoked(joined)
                except (OSError, Unreachable):
                    if not self._id:
                        raise
                    self._wait(UNREACHABLE_PAUSE_S)
        except _ReaderLeft:
            pass
        except Exception as error:
            with self._changed:
                self._failed = error
                self._changed.notify_all()
        finally:
            self._cluster.close()

    def _offer(self, joined: _JoinedGroup) -> None:
        with self._changed:
            self._joined, self._taken = joined, False
            self._read_at = time.monotonic()
            self._changed.notify_all()

    def _wait(self, longest_s: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._ended, longest_s)

    def _join(self) -> _JoinedGroup | None:
        """Join with the other members; return None if that has to be tried again."""
        # the partition counts in other members' subscriptions may be outdated
        self._counts = None
        subscription = encode_subscription(self._topics)
        facts = {
            "group_id": self._group, "session_timeout_ms": int(self._timing.session_s * 1000),
            "rebalance_timeout_ms": int(self._timing.reading_s * 1000), "group_instance_id": None,
            "protocol_type": PROTOCOL, "protocols": [{"name": name, "metadata": subscription} for name in ASSIGNORS],
        }  # fmt: skip
        answer = self._ask("JoinGroup", **facts, member_id=self._id)
        if answer.error_code == errors.MEMBER_ID_REQUIRED:
            self._id = answer.member_id
            return None
        if self._must_rejoin(answer.error_code):
            return None
        self._id = answer.member_id
        shares = self._assign_shares(answer) if answer.leader == answer.member_id else []
        synced = self._ask(
            "SyncGroup", group_id=self._group, generation_id=answer.generation_id, member_id=self._id,
            group_instance_id=None, assignments=shares,
        )  # fmt: skip
        if self._must_rejoin(synced.error_code):
            return None
        return _JoinedGroup(self._id, answer.generation_id, tuple(parse_assignment(bytes(synced.assignment))))

    def _must_rejoin(self, code: int) -> bool:
        """Return whether to join again after this code; raise an error if that would not help."""
        if code == errors.UNKNOWN_MEMBER:
            self._id = ""
        elif code not in _GONE:
            if code:
                raise kafka_error(f"group {self._group!r} cannot be joined", code)
            return False
        return True

    def _assign_shares(self, answer: Any) -> list[dict[str, Any]]:
        """Return the partitions of each member, by the strategy that all members know."""
        members = {row.member_id: parse_subscription(bytes(row.metadata)) for row in answer.members}
        self._counts = self._count_partitions({topic for metadata in members.values() for topic in metadata.topics})
        shares = ASSIGNORS[answer.protocol_name](members, self._counts)
        return [{"member_id": member, "assignment": encode_assignment(places)} for member, places in shares.items()]

    def _count_partitions(self, topics: set[str]) -> dict[str, int]:
        rows = self._cluster.metadata(sorted(topics)).topics
        return {row.name: len(row.partitions) for row in rows if not row.error_code}

    def _heartbeat_until_revoked(self, joined: _JoinedGroup) -> None:
        """Send heartbeats until partitions are revoked and the reader has released them."""
        looked_at = time.monotonic()
        while not self._ended:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or self._joined is None, self._timing.heartbeat_s)
                if self._ended or self._joined is None:
                    return
                idle_s = time.monotonic() - self._read_at
            if idle_s > self._timing.reading_s:
                self._leave_idle_group(joined)
                return
            answer = self._ask(
                "Heartbeat", group_id=self._group, generation_id=joined.generation, member_id=joined.member
            )
            if self._must_rejoin(answer.error_code):
                self.revoke()
                continue
            if self._counts is not None and time.monotonic() - looked_at > TOPICS_S:
                looked_at = time.monotonic()
                if self._count_partitions(set(self._counts)) != self._counts:
                    self.revoke()

    def _leave_idle_group(self, joined: _JoinedGroup) -> None:
        """Leave the group because its partitions are not read; the member joins again when reading continues."""
        self._ask("LeaveGroup", group_id=self._group, member_id=joined.member)
        self._id = ""
        self.revoke()
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._joined is None)

    def _ask(self, api: str, **fields: Any) -> Any:
        """Return the coordinator's response; while it returns codes that pass with time, wait."""
        wait_s = self._timing.reading_s + GRACE_S if api in ("JoinGroup", "SyncGroup") else 0.0

        def ask(broker: KafkaSocket) -> Any:
            if self._ended:
                raise _ReaderLeft
            answer = broker.ask(api, wait_s=wait_s, **fields)
            if answer.error_code in errors.RETRIABLE:
                raise_for_code(f"group {self._group!r}", answer.error_code)
            return answer

        while not self._ended:
            try:
                return self._cluster.at_coordinator(GROUP, self._group, ask)
            except (Retriable, RemoteError) as error:
                code = getattr(error, "code", None)
                known = bool(self._id) and isinstance(error, Unreachable)
                if not known and code not in errors.RETRIABLE:
                    raise
                self._wait(UNREACHABLE_PAUSE_S)
        raise _ReaderLeft


class _ReaderLeft(Exception):
    """The reader left during a request."""
