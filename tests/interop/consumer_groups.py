"""One conversation with a coordinator about a consumer group of KIP-848 in raw requests, as plain data."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from lading.dialects.kafka import versions as v
from tests.interop.coordinator import TIMEOUT_S, Talk

ROUNDS_MAX = 200
"""Heartbeats until a real coordinator has computed an assignment, which it does a little later."""


class ConsumerGroupTalk(Talk):
    """A conversation about consumer groups; topics are named by the order in which they were created."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(address, topic)
        self.ids: dict[Any, str] = {}

    def create(self, name: str, partitions_count: int) -> UUID:
        """Create a topic; return its id."""
        full = f"{self.topic}-{name}"
        row = {
            "name": full,
            "num_partitions": partitions_count,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        (got,) = self.ask(v.CREATE_TOPICS, 7, topics=[row], timeout_ms=10_000, validate_only=False).topics
        assert got.error_code == 0, got
        self.ids[got.topic_id] = name
        until = time.monotonic() + TIMEOUT_S
        while self.ask(v.METADATA, 9, topics=[{"name": full}], allow_auto_topic_creation=False,
                       include_topic_authorized_operations=False).topics[0].error_code:  # fmt: skip
            assert time.monotonic() < until
            time.sleep(0.05)
        return UUID(str(got.topic_id))

    def grow(self, name: str, partitions_count: int) -> None:
        """Have a topic have more partitions."""
        row = {"name": f"{self.topic}-{name}", "count": partitions_count, "assignments": None}
        (got,) = self.ask(v.CREATE_PARTITIONS, 3, topics=[row], timeout_ms=10_000, validate_only=False).results
        assert got.error_code == 0, got

    def beat(
        self, group: str, member: str, epoch: int, *names: str, version: int = 1, owned: Any = None, **more: Any
    ) -> Any:
        """A heartbeat as it is."""
        fields: dict[str, Any] = {"group_id": group, "member_id": member, "member_epoch": epoch}
        if names:
            fields["subscribed_topic_names"] = [f"{self.topic}-{name}" for name in names]
        if epoch == 0:
            fields |= {"rebalance_timeout_ms": 30_000, "topic_partitions": []}
        if owned is not None:
            fields["topic_partitions"] = self.places(owned)
        return self.ask(v.CONSUMER_GROUP_HEARTBEAT, version, **fields | more)

    def places(self, owned: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
        by_name = {name: topic for topic, name in self.ids.items()}
        return [{"topic_id": by_name[name], "partitions": list(numbers)} for name, numbers in owned.items()]

    def shown(self, assignment: Any) -> Any:
        """An assignment, by the names of topics."""
        if assignment is None:
            return None
        rows = assignment.topic_partitions
        return {self.ids.get(row.topic_id, str(row.topic_id)): sorted(row.partitions) for row in rows if row.partitions}

    def told(self, step: str, group: str, member: str, epoch: int, *names: str, **more: Any) -> Any:
        """A heartbeat that is noted whole."""
        got = self.beat(group, member, epoch, *names, **more)
        self.note(
            step, got.error_code, got.error_message, self.named(got.member_id, "m") if got.member_id else got.member_id,
            got.member_epoch, self.shown(got.assignment),
        )  # fmt: skip
        return got

    def until(self, group: str, member: str, epoch: int, is_wanted: Callable[[Any], bool], **more: Any) -> Any:
        """Heartbeats until one has what is wanted; the last is returned, an error ends it."""
        for _ in range(ROUNDS_MAX):
            got = self.beat(group, member, epoch, **more)
            if got.error_code or is_wanted(got):
                return got
            epoch = got.member_epoch
            time.sleep(0.05)
        raise AssertionError(f"{got} is not what is wanted")

    def described(self, group: str, version: int = 1) -> Any:
        """Its description, without what the server chose."""
        (got,) = self.ask(
            v.CONSUMER_GROUP_DESCRIBE, version, group_ids=[group], include_authorized_operations=False
        ).groups
        return got

    def note_description(self, step: str, group: str) -> None:
        got = self.described(group)
        members = sorted(
            [
                one.member_id, one.instance_id, one.rack_id, one.member_epoch, one.client_id,
                sorted(name.removeprefix(f"{self.topic}-") for name in one.subscribed_topic_names or ()),
                one.subscribed_topic_regex, self.shown(one.assignment), self.shown(one.target_assignment),
                one.member_type,
            ]
            for one in got.members
        )  # fmt: skip
        self.note(
            step, got.error_code, got.error_message, got.group_state, got.group_epoch, got.assignment_epoch,
            got.assignor_name, members,
        )  # fmt: skip
