"""A member of a share group: what it sends to leaders, and what it makes of their refusals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from lading.dialects.kafka import errors
from lading.model.errors import Reason, Refusal
from lading.transports.kafka.share import ACCEPT, RELEASE, RENEW, Acknowledgement, ShareMember

TOPIC_ID = UUID(int=7)


class ScriptedLeader:
    """A broker that leads every partition, and refuses acknowledgements of some offsets."""

    open = True

    def __init__(self) -> None:
        self.not_held: set[int] = set()
        self.requests: list[tuple[str, int, list[tuple[int, int, int]]]] = []
        """API, epoch of the session, and (first, last, kind) of what was acknowledged."""
        self.next_error = 0

    def speaks(self, api: str) -> bool:
        return True

    def ask(self, api: str, **fields: Any) -> Any:
        rows = [part for topic in fields.get("topics", ()) for part in topic["partitions"]]
        settled = [
            (one["first_offset"], one["last_offset"], *one["acknowledge_types"])
            for row in rows
            for one in row["acknowledgement_batches"]
        ]
        self.requests.append((api, fields["share_session_epoch"], settled))
        code, self.next_error = self.next_error, 0
        refused = any(first <= offset <= last for first, last, _ in settled for offset in self.not_held)
        state = errors.INVALID_RECORD_STATE if refused else 0
        part = SimpleNamespace(
            partition_index=0, error_code=0 if api == "ShareFetch" else state, acknowledge_error_code=state,
            error_message=None, acquired_records=[], records=b"",
        )  # fmt: skip
        topic = SimpleNamespace(topic_id=TOPIC_ID, partitions=[part] if rows else [])
        return SimpleNamespace(
            error_code=code, error_message=None, acquisition_lock_timeout_ms=30_000, responses=[topic]
        )


@pytest.fixture
def leader() -> ScriptedLeader:
    return ScriptedLeader()


@pytest.fixture
def member(leader: ScriptedLeader) -> ShareMember:
    cluster: Any = SimpleNamespace(leader=lambda topic, partition: leader, forget=lambda topic: None)
    made = ShareMember(cluster, "group", "legs", TOPIC_ID.bytes)
    cast("Any", made)._partitions = {0}
    made.fetch(1, 0, [])
    leader.requests.clear()
    return made


def settle(*offsets: int, kind: int = ACCEPT) -> list[Acknowledgement]:
    return [Acknowledgement(0, offset, offset, kind) for offset in offsets]


def test_neighbours_go_as_one_range(member: ShareMember, leader: ScriptedLeader) -> None:
    member.acknowledge([*settle(3, 1, 2, 7), *settle(4, kind=RELEASE)])
    assert leader.requests == [("ShareAcknowledge", 1, [(1, 3, ACCEPT), (4, 4, RELEASE), (7, 7, ACCEPT)])]
    member.fetch(5, 0, settle(8))
    member.renew(settle(9, kind=RENEW))
    assert leader.requests[1:] == [("ShareFetch", 2, [(8, 8, ACCEPT)]), ("ShareAcknowledge", 3, [(9, 9, RENEW)])]


@pytest.mark.parametrize("by_fetch", [True, False])
def test_a_message_that_is_lost_takes_no_other_with_it(
    member: ShareMember, leader: ScriptedLeader, by_fetch: bool
) -> None:
    leader.not_held = {5}
    if by_fetch:
        member.fetch(1, 0, settle(*range(8), 20))
    else:
        member.acknowledge(settle(*range(8), 20))
    taken = {
        offset
        for _, _, settled in leader.requests
        if not any(first <= 5 <= last for first, last, _ in settled)
        for first, last, _ in settled
        for offset in range(first, last + 1)
    }
    assert taken == {*range(8), 20} - {5}
    confirmed = {offset for one in member.confirmed for offset in range(one.first, one.last + 1)}
    assert confirmed == {*range(8), 20} - {5}


def test_a_session_that_is_lost_begins_anew_and_its_acknowledgements_are_void(
    member: ShareMember, leader: ScriptedLeader
) -> None:
    leader.next_error = errors.SHARE_SESSION_NOT_FOUND
    assert member.fetch(1, 0, settle(1)) == [] and member.lost == {0}
    member.fetch(1, 0, settle(2))
    # the first request of a session may acknowledge nothing (KIP-932)
    assert leader.requests[1:] == [("ShareFetch", 0, [])]
    assert member.confirmed == []


def test_a_cluster_without_share_groups_is_refused() -> None:
    broker = SimpleNamespace(speaks=lambda api: False)
    cluster: Any = SimpleNamespace(at_coordinator=lambda kind, group, ask: ask(broker))
    with pytest.raises(Refusal, match=r"no share groups.*Kafka 4\.2") as refused:
        ShareMember(cluster, "group", "legs", TOPIC_ID.bytes).heartbeat()
    assert refused.value.reason is Reason.FEATURE_UNAVAILABLE
