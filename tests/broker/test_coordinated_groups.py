"""Coordinated groups: every way in and out, every time-out by a clock that is passed, and a model of all of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lading.broker.broker import Broker
from lading.broker.core.pending_result import PendingResult
from lading.broker.core.position import StoredPosition
from lading.broker.core.settings import BrokerSettings
from lading.broker.kafka.group import (
    PROTOCOL_BYTES,
    TRANSITIONS,
    GroupState,
    JoinGroupRequest,
    JoinGroupResult,
    KafkaGroup,
    KafkaGroupMember,
    MemberIdRequired,
    SyncGroupResult,
)
from lading.broker.kafka.group_coordinator import KafkaGroupCoordinator, MemberCall
from lading.model.errors import Reason, Refusal
from tests.broker.room import FULL, NOW, SECOND, opened, topic_of
from tests.broker.test_native_append import crashed

SESSION = 10 * SECOND
REBALANCE = 30 * SECOND
DELAY = BrokerSettings().rebalance_delay_us


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return opened(tmp_path)


@pytest.fixture
def groups(broker: Broker) -> KafkaGroupCoordinator:
    return broker.coordinated_groups


def call(
    member: str = "", protocols: tuple[str, ...] = ("range",), instance: str | None = None, *, metadata: bytes = b"m"
) -> JoinGroupRequest:
    named = tuple((name, metadata) for name in protocols)
    return JoinGroupRequest("g", member, "consumer", named, SESSION, REBALANCE, instance, "client", "/127.0.0.1")


def joined(answer: PendingResult[JoinGroupResult]) -> JoinGroupResult:
    assert answer.done
    return answer.value


def reason(act: Callable[[], object]) -> Reason:
    with pytest.raises(Refusal) as refusal:
        act()
    return refusal.value.reason


def who(one: JoinGroupResult, instance: str | None = None) -> MemberCall:
    return MemberCall("g", one.member, one.generation, instance)


def sync(
    groups: KafkaGroupCoordinator, one: JoinGroupResult, work: dict[str, bytes] | None = None
) -> PendingResult[SyncGroupResult]:
    return groups.sync(who(one), ("consumer", "range"), work or {}, now_us=NOW)


def stable(groups: KafkaGroupCoordinator, count: int, now_us: int = NOW) -> list[JoinGroupResult]:
    """A group of so many members that all have their work, the leader first."""
    answers = [groups.join(call(), now_us=now_us) for _ in range(count)]
    groups.tick(now_us + DELAY)
    groups.tick(now_us + 2 * DELAY)
    members = [joined(one) for one in answers]
    work = {one.member: one.member.encode() for one in members}
    synced = [sync(groups, one, work if one.member == one.leader else None) for one in members]
    assert [one.value.assignment for one in synced] == [one.member.encode() for one in members]
    return members


def test_the_first_members_wait_for_others(groups: KafkaGroupCoordinator) -> None:
    first = groups.join(call(), now_us=NOW)
    groups.tick(NOW + DELAY - 1)
    second = groups.join(call(), now_us=NOW + DELAY - 1)
    groups.tick(NOW + DELAY)
    assert not first.done
    groups.tick(NOW + 2 * DELAY)
    one, two = joined(first), joined(second)
    assert (one.generation, two.generation, one.leader, two.leader) == (1, 1, one.member, one.member)
    assert [member for member, _, _ in one.members] == [one.member, two.member]
    assert two.members == ()


def test_a_member_without_a_name_gets_one_first(groups: KafkaGroupCoordinator) -> None:
    answer = groups.join(call()._replace(requires_member_id=True), now_us=NOW)
    assert isinstance(answer.error, MemberIdRequired)
    again = groups.join(call(answer.error.member), now_us=NOW)
    groups.tick(NOW + DELAY)
    groups.tick(NOW + 2 * DELAY)
    assert joined(again).member == answer.error.member
    lost = groups.join(call()._replace(requires_member_id=True), now_us=NOW)
    assert isinstance(lost.error, MemberIdRequired)
    groups.tick(NOW + SESSION)
    late = groups.join(call(lost.error.member), now_us=NOW + SESSION)
    assert reason(lambda: late.value) is Reason.GROUP_MEMBER_NOT_FOUND


def test_members_get_what_the_leader_says(groups: KafkaGroupCoordinator) -> None:
    leader, follower = stable(groups, 2)
    for one in (leader, follower):
        groups.heartbeat(who(one), now_us=NOW)
        assert sync(groups, one).value.assignment == one.member.encode()
    stale = who(leader)._replace(generation=0)
    assert reason(lambda: groups.heartbeat(stale, now_us=NOW)) is Reason.STALE_GENERATION
    assert reason(lambda: groups.sync(stale, (None, None), {}, now_us=NOW).value) is Reason.STALE_GENERATION
    other = groups.sync(who(leader), ("consumer", "sticky"), {}, now_us=NOW)
    assert reason(lambda: other.value) is Reason.INCONSISTENT_PROTOCOL
    nobody = MemberCall("g", "nobody", 1)
    assert reason(lambda: groups.heartbeat(nobody, now_us=NOW)) is Reason.GROUP_MEMBER_NOT_FOUND


def test_one_more_member_makes_all_join_again(groups: KafkaGroupCoordinator) -> None:
    leader, follower = stable(groups, 2)
    third = groups.join(call(), now_us=NOW)
    assert reason(lambda: groups.heartbeat(who(leader), now_us=NOW)) is Reason.REBALANCE_IN_PROGRESS
    assert reason(lambda: sync(groups, leader).value) is Reason.REBALANCE_IN_PROGRESS
    again = [groups.join(call(one.member), now_us=NOW) for one in (leader, follower)]
    assert [joined(one).generation for one in (*again, third)] == [2, 2, 2]


def test_who_does_not_join_again_is_out(groups: KafkaGroupCoordinator) -> None:
    leader, follower = stable(groups, 2)
    third = groups.join(call(), now_us=NOW)
    again = groups.join(call(leader.member), now_us=NOW)
    for at in range(0, REBALANCE, SESSION // 2):
        with pytest.raises(Refusal):
            groups.heartbeat(who(follower), now_us=NOW + at)
        groups.tick(NOW + at)
    assert not again.done
    groups.tick(NOW + REBALANCE)
    assert joined(again).generation == joined(third).generation == 2
    late = groups.join(call(follower.member), now_us=NOW + REBALANCE)
    assert reason(lambda: late.value) is Reason.GROUP_MEMBER_NOT_FOUND


def test_who_is_silent_is_out(groups: KafkaGroupCoordinator, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "lading.broker")
    leader, follower = stable(groups, 2)
    groups.heartbeat(who(leader), now_us=NOW + SESSION)
    groups.tick(NOW + SESSION + DELAY * 2)
    assert caplog.messages == [
        f"group 'g': went on without members that sent no heartbeat within their session time-out: {follower.member}"
    ]
    assert reason(lambda: groups.heartbeat(who(leader), now_us=NOW + SESSION)) is Reason.REBALANCE_IN_PROGRESS
    again = joined(groups.join(call(leader.member), now_us=NOW + SESSION))
    assert (again.generation, len(again.members)) == (2, 1)
    assert follower.member not in {member for member, _, _ in again.members}


def test_a_leader_that_says_nothing_is_out(groups: KafkaGroupCoordinator) -> None:
    answers = [groups.join(call(), now_us=NOW) for _ in range(2)]
    groups.tick(NOW + DELAY)
    groups.tick(NOW + 2 * DELAY)
    leader, follower = map(joined, answers)
    waiting = sync(groups, follower)
    groups.tick(NOW + SESSION + 3 * DELAY)
    assert reason(lambda: waiting.value) is Reason.REBALANCE_IN_PROGRESS
    again = joined(groups.join(call(follower.member), now_us=NOW + SESSION + 3 * DELAY))
    assert (again.leader, len(again.members)) == (follower.member, 1)
    assert reason(lambda: groups.heartbeat(who(leader), now_us=NOW)) is Reason.GROUP_MEMBER_NOT_FOUND


def test_leaving(groups: KafkaGroupCoordinator) -> None:
    leader, follower = stable(groups, 2)
    out = groups.leave("g", [(follower.member, None), ("nobody", None)], now_us=NOW)
    assert out[0] is None
    assert out[1] is not None
    assert out[1].reason is Reason.GROUP_MEMBER_NOT_FOUND
    assert joined(groups.join(call(leader.member), now_us=NOW)).generation == 2
    assert groups.leave("g", [(leader.member, None)], now_us=NOW) == [None]
    group = groups.find("g")
    assert group is not None
    assert (group.state, group.members, group.generation) == (GroupState.EMPTY, {}, 3)


def test_the_protocol_most_members_like_best(groups: KafkaGroupCoordinator) -> None:
    likes = [("sticky", "range"), ("range", "sticky"), ("range", "cooperative", "sticky")]
    answers = [groups.join(call(protocols=one), now_us=NOW) for one in likes]
    groups.tick(NOW + DELAY)
    groups.tick(NOW + 2 * DELAY)
    assert {joined(one).protocol for one in answers} == {"range"}
    alone = groups.join(call(protocols=("other",)), now_us=NOW)
    assert reason(lambda: alone.value) is Reason.INCONSISTENT_PROTOCOL
    connect = groups.join(call()._replace(protocol_type="connect"), now_us=NOW)
    assert reason(lambda: connect.value) is Reason.INCONSISTENT_PROTOCOL
    short = groups.join(call()._replace(session_timeout_us=SECOND), now_us=NOW)
    assert reason(lambda: short.value) is Reason.INVALID_SESSION_TIMEOUT
    unnamed = groups.join(call()._replace(group=""), now_us=NOW)
    assert reason(lambda: unnamed.value) is Reason.INVALID_GROUP_ID


def test_an_instance_keeps_its_work_when_it_is_started_again(groups: KafkaGroupCoordinator) -> None:
    answers = [groups.join(call(instance=name), now_us=NOW) for name in ("a", "b")]
    groups.tick(NOW + DELAY)
    groups.tick(NOW + 2 * DELAY)
    a, b = map(joined, answers)
    sync(groups, a, {a.member: b"A", b.member: b"B"})
    for told_to_skip in (False, True):
        again = joined(groups.join(call(instance="b")._replace(supports_skip_assignment=told_to_skip), now_us=NOW))
        assert (again.generation, again.member != b.member, again.skip_assignment) == (1, True, False)
        assert groups.sync(who(again, "b"), (None, None), {}, now_us=NOW).value.assignment == b"B"
        assert reason(lambda: groups.heartbeat(who(b, "b"), now_us=NOW)) is Reason.MEMBER_REPLACED  # noqa: B023
        b = again
    leader = joined(groups.join(call(instance="a")._replace(supports_skip_assignment=True), now_us=NOW))
    assert (leader.leader, leader.skip_assignment, len(leader.members)) == (leader.member, True, 2)
    assert groups.leave("g", [("", "b")], now_us=NOW) == [None]
    group = groups.find("g")
    assert group is not None
    assert group.state is GroupState.PREPARING


def test_an_instance_with_other_metadata_begins_a_generation(groups: KafkaGroupCoordinator) -> None:
    first = groups.join(call(instance="a"), now_us=NOW)
    groups.tick(NOW + DELAY)
    groups.tick(NOW + 2 * DELAY)
    sync(groups, joined(first), {joined(first).member: b"A"})
    again = joined(groups.join(call(instance="a", metadata=b"other topics"), now_us=NOW))
    assert again.generation == 2


def test_a_lost_answer_is_given_again(groups: KafkaGroupCoordinator) -> None:
    leader, follower = stable(groups, 2)
    assert joined(groups.join(call(follower.member), now_us=NOW)).generation == 1
    assert not groups.join(call(leader.member), now_us=NOW).done


def test_a_group_takes_so_many_members(tmp_path: Path) -> None:
    groups = opened(tmp_path, group_members_max=2).coordinated_groups
    groups.join(call(), now_us=NOW)
    groups.join(call()._replace(requires_member_id=True), now_us=NOW)
    third = groups.join(call(), now_us=NOW)
    assert reason(lambda: third.value) is Reason.GROUP_FULL


def test_positions_belong_to_members_of_a_generation(tmp_path: Path, broker: Broker) -> None:
    groups, partition = broker.coordinated_groups, topic_of(broker).partition(0)
    (member,) = stable(groups, 1)
    groups.admit(who(member), now_us=NOW)
    stale = who(member)._replace(generation=0)
    assert reason(lambda: groups.admit(stale, now_us=NOW)) is Reason.STALE_GENERATION
    alone = MemberCall("g", "", -1)
    assert reason(lambda: groups.admit(alone, now_us=NOW)) is Reason.GROUP_MEMBER_NOT_FOUND
    groups.admit(alone, in_transaction=True, now_us=NOW)
    unknown = MemberCall("other", "m", 3)
    assert reason(lambda: groups.admit(unknown, now_us=NOW)) is Reason.GROUP_NOT_FOUND
    older = partial(groups.admit, unknown, knows_epochs=False, now_us=NOW)
    assert reason(older) is Reason.STALE_GENERATION
    groups.admit(alone._replace(group="alone"), now_us=NOW)
    position = StoredPosition(7, 2, b"text", NOW)
    for name in ("g", "alone"):
        groups.store(name, partition, position)
    assert reason(lambda: groups.delete("g", [])) is Reason.GROUP_NOT_EMPTY
    broker.tick(NOW + SECOND)
    broker = crashed(tmp_path, broker)
    groups, topic = broker.coordinated_groups, broker.topology.topic("s", "t")
    assert sorted(groups.names()) == ["alone", "g"]
    assert groups.position("g", topic.partition(0)) == position
    groups.delete("g", [topic])
    assert groups.position("g", topic.partition(0)) is None
    assert groups.position("alone", topic.partition(0)) == position
    assert reason(lambda: groups.delete("g", [])) is Reason.GROUP_NOT_FOUND
    broker = crashed(tmp_path, broker)
    assert list(broker.coordinated_groups.names()) == ["alone"]


def test_who_waits_is_told_when_the_broker_stops(groups: KafkaGroupCoordinator) -> None:
    answer = groups.join(call(), now_us=NOW)
    groups.stop()
    assert reason(lambda: answer.value) is Reason.STOPPING


def test_the_table_of_states_is_whole() -> None:
    assert set(TRANSITIONS) == set(GroupState)
    reached = {GroupState.EMPTY}
    for _ in GroupState:
        reached |= {after for before in reached for after in TRANSITIONS[before]}
    assert reached == set(GroupState)


class Client:
    """A member as a client library plays it: it joins, syncs, sends heartbeats, and begins again when told."""

    def __init__(self, instance: str | None) -> None:
        self.instance = instance
        self.member = ""
        self.generation = -1
        self.joining: PendingResult[JoinGroupResult] | None = None
        self.syncing: PendingResult[SyncGroupResult] | None = None
        self.owned: frozenset[int] | None = None
        """Partitions it reads in ``generation``; None outside of one."""

    def step(self, groups: KafkaGroupCoordinator, now_us: int) -> None:
        """Whatever it has to do next."""
        if self.joining is not None:
            if self.joining.done:
                self._joined(groups, self.joining, now_us)
        elif self.syncing is not None:
            if self.syncing.done:
                self._synced(self.syncing)
        elif self.owned is None:
            wanted = call(self.member, instance=self.instance)._replace(requires_member_id=True)
            self.joining = groups.join(wanted, now_us=now_us)
        else:
            try:
                groups.heartbeat(MemberCall("g", self.member, self.generation, self.instance), now_us=now_us)
            except Refusal as refusal:
                self.told(refusal)

    def told(self, refusal: Refusal) -> None:
        self.owned = self.joining = self.syncing = None
        if isinstance(refusal, MemberIdRequired):
            self.member = refusal.member
        elif refusal.reason is not Reason.REBALANCE_IN_PROGRESS:
            self.member, self.generation = "", -1

    def _joined(self, groups: KafkaGroupCoordinator, answer: PendingResult[JoinGroupResult], now_us: int) -> None:
        if answer.error is not None:
            self.told(answer.error)
            return
        got = answer.value
        self.joining, self.member, self.generation = None, got.member, got.generation
        work: dict[str, bytes] = {}
        if got.leader == got.member:
            names = [member for member, _, _ in got.members]
            work = {name: bytes(range(at, 8, len(names))) for at, name in enumerate(names)}
        me = MemberCall("g", self.member, self.generation, self.instance)
        self.syncing = groups.sync(me, ("consumer", "range"), work, now_us=now_us)

    def _synced(self, answer: PendingResult[SyncGroupResult]) -> None:
        if answer.error is not None:
            self.told(answer.error)
            return
        self.syncing, self.owned = None, frozenset(answer.value.assignment)


class GroupMachine(RuleBasedStateMachine):
    """Clients come, go, die, come back and are slow; time passes. One owner per partition and generation, always;
    and left alone, everybody gets work."""

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        self.broker = opened(Path(self._directory.name))
        self.groups = self.broker.coordinated_groups
        self.clients: list[Client] = []
        self.now_us = NOW
        self.instances = 0

    def teardown(self) -> None:
        self.broker.stop()
        self._directory.cleanup()

    @precondition(lambda self: len(self.clients) < 5)
    @rule(static=st.booleans())
    def arrive(self, static: bool) -> None:
        self.instances += static
        self.clients.append(Client(f"i{self.instances}" if static else None))

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 4), steps=st.integers(1, 3))
    def step(self, at: int, steps: int) -> None:
        for _ in range(steps):
            self.clients[at % len(self.clients)].step(self.groups, self.now_us)

    @rule()
    def all_step(self) -> None:
        for client in self.clients:
            client.step(self.groups, self.now_us)

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 4))
    def leave(self, at: int) -> None:
        client = self.clients.pop(at % len(self.clients))
        if client.member:
            self.groups.leave("g", [(client.member, client.instance)], now_us=self.now_us)

    @precondition(lambda self: self.clients)
    @rule(at=st.integers(0, 4), back=st.booleans())
    def die(self, at: int, back: bool) -> None:
        client = self.clients.pop(at % len(self.clients))
        if back and client.instance:
            self.clients.append(Client(client.instance))

    @rule(seconds=st.sampled_from([0.05, 0.2, 1, 5, 11, 31]))
    def wait(self, seconds: float) -> None:
        self.now_us += int(seconds * SECOND)
        self.groups.tick(self.now_us)

    @invariant()
    def one_owner_each(self) -> None:
        group = self.groups.find("g")
        owned: dict[tuple[int, int], str] = {}
        for client in self.clients:
            for partition in client.owned or ():
                assert owned.setdefault((client.generation, partition), client.member) == client.member
        if isinstance(group, KafkaGroup):
            assert not (group.state is GroupState.EMPTY and group.members)
            assert group.leader is None or group.leader in group.members
            assert set(group.instances.values()) <= set(group.members)

    @rule()
    def left_alone_everybody_gets_work(self) -> None:
        for _ in range(80):
            self.now_us += SECOND
            self.groups.tick(self.now_us)
            for client in self.clients:
                client.step(self.groups, self.now_us)
        group = self.groups.find("g")
        assert all(client.owned is not None for client in self.clients), [vars(one) for one in self.clients]
        assert len({client.generation for client in self.clients}) <= 1
        if self.clients:
            assert sorted(one for client in self.clients for one in client.owned or ()) == list(range(8))
            assert group is not None
            assert group.state is GroupState.STABLE
            assert set(group.members) == {client.member for client in self.clients}
        elif group is not None:
            assert group.state is GroupState.EMPTY


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(
    max_examples=400 if FULL else 40, stateful_step_count=30, deadline=None, derandomize=not FULL
)


def test_what_members_say_of_themselves_is_bounded_and_freed_when_they_leave(tmp_path: Path) -> None:
    # the pair of a name and its metadata counts too
    broker = opened(
        tmp_path,
        member_metadata_bytes_max=1000 + PROTOCOL_BYTES,
        groups_metadata_bytes_max=3000 + 3 * PROTOCOL_BYTES,
    )
    groups = broker.coordinated_groups

    def joined(group: str, size_bytes: int, member: str = "") -> Reason | None:
        call = JoinGroupRequest(group, member, "consumer", (("range", bytes(size_bytes)),), 10 * SECOND, 10 * SECOND)
        answer = groups.join(call, now_us=NOW)
        return None if answer.error is None else answer.error.reason

    assert joined("a", 1001) is Reason.REQUEST_TOO_LARGE
    for name in "abc":
        assert joined(name, 900) is None
    assert joined("d", 900) is Reason.GROUP_FULL
    # who joins again takes the place of what it said before
    found = groups.find("a")
    assert found is not None
    (member,) = found.members
    assert joined("a", 990, member) is None
    assert groups.leave("a", [(member, None)], now_us=NOW) == [None]
    assert joined("d", 900) is None
    # those who stay away are gone after their session, with what they said
    broker.tick(NOW + 5 * SECOND)
    for second in range(6, 40):
        broker.tick(NOW + second * SECOND)
    assert groups._rebalancer.metadata_bytes == 0
    broker.stop()


def test_how_many_protocols_a_member_has_is_bounded_before_they_are_listed(tmp_path: Path) -> None:
    """A JoinGroup of 100,000 protocols without a name took no memory that was counted, and kept the loop for 31 ms."""
    broker = opened(tmp_path, member_metadata_bytes_max=100 * PROTOCOL_BYTES)
    groups = broker.coordinated_groups
    groups.require_few_protocols("a", 100)
    with pytest.raises(Refusal, match="metadata"):
        groups.require_few_protocols("a", 101)
    call = JoinGroupRequest("a", "", "consumer", (("", b""),) * 101, 10 * SECOND, 10 * SECOND)
    error = groups.join(call, now_us=NOW).error
    assert error is not None and error.reason is Reason.REQUEST_TOO_LARGE
    broker.stop()


def test_protocols_of_two_members_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What all members have in common was found anew for each protocol of one that joins."""
    found = 0
    common = KafkaGroup.common

    def count(group: KafkaGroup) -> set[str]:
        nonlocal found
        found += 1
        return common(group)

    monkeypatch.setattr(KafkaGroup, "common", count)
    group = KafkaGroup("a")
    call = JoinGroupRequest("a", "", "consumer", (("range", b""),), 10 * SECOND, 10 * SECOND)
    group.members["first"] = KafkaGroupMember("first", call, NOW, PendingResult())
    assert not group.accepts("consumer", tuple((f"p{number}", b"") for number in range(1_000)))
    assert found == 1
