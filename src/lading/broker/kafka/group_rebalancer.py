"""Rebalances of a coordinated group: all join, the leader divides the work (kafka.md 3).

Those that stay away for too long are left out; the first members of a group wait a moment for others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...model.errors import Reason
from .group import GroupState, KafkaGroup, KafkaGroupMember, SyncGroupResult, no_group
from .group_time_outs import GroupTimeOuts, log_expired


class GroupRebalancer:
    """The generations and time-outs of all coordinated groups."""

    def __init__(self, delay_us: int, on_due: Callable[[], None]) -> None:
        """``delay_us`` is how long first members wait; ``on_due`` is called when a time-out comes nearer."""
        self.metadata_bytes = 0
        """Bytes of the metadata of all members of all groups."""
        self.time_outs = GroupTimeOuts(on_due)
        self._delay_us = delay_us

    def watch_all(self, group: KafkaGroup) -> None:
        """Watch every time-out of a group."""
        for deadline_us in group.named.values():
            self.time_outs.watch(deadline_us)
        for member in group.members.values():
            if member.joining is None and member.syncing is None:
                self.time_outs.watch(member.deadline_us)
        if group.state in (GroupState.PREPARING, GroupState.COMPLETING):
            self.time_outs.watch(group.deadline_us)

    def rebalance(self, group: KafkaGroup, now_us: int) -> None:
        """Start a rebalance, unless one is in progress."""
        if group.state is GroupState.COMPLETING:
            for member in group.members.values():
                member.assignment, member.must_sync = b"", False
                if member.syncing is not None:
                    syncing, member.syncing = member.syncing, None
                    member.touch(now_us)
                    syncing.refuse(group.rebalance_error())
        if group.state is not GroupState.PREPARING:
            timeout_us = group.rebalance_timeout_us
            group.deadline_us = now_us + timeout_us
            group.delay_until_us = None
            if group.state is GroupState.EMPTY and self._delay_us:
                group.delay_until_us = group.deadline_us
                group.deadline_us = now_us + min(self._delay_us, timeout_us)
                group.newcomers = False
            group.move(GroupState.PREPARING)
        self.watch_all(group)
        self.complete_when_ready(group, now_us)

    def complete_when_ready(self, group: KafkaGroup, now_us: int) -> None:
        """Begin the next generation if all members have joined."""
        waits = group.members and group.delay_until_us is not None
        if group.state is GroupState.PREPARING and not waits and group.all_joined:
            self._complete(group, now_us)

    def _complete(self, group: KafkaGroup, now_us: int) -> None:
        """Begin the next generation with the members that have joined; an instance keeps its place while it is away."""
        away = [one for one in group.members.values() if one.joining is None and one.call.instance is None]
        for member in away:
            self._take_out(group, member)
        log_expired(group.name, [member.id for member in away], "did not join again within the rebalance time-out")
        present = [one for one in group.members.values() if one.joining is not None]
        if group.members and not present:
            group.deadline_us = now_us + group.rebalance_timeout_us
            self.time_outs.watch(group.deadline_us)
            return
        group.delay_until_us = None
        group.generation += 1
        if not present:
            group.protocol = group.leader = None
            group.move(GroupState.EMPTY)
            return
        if group.leader not in {one.id for one in present}:
            group.leader = present[0].id
        group.protocol = group.select_protocol()
        group.move(GroupState.COMPLETING)
        group.deadline_us = now_us + group.rebalance_timeout_us
        for member in present:
            answer, member.joining = member.joining, None
            member.must_sync = True
            member.touch(now_us)
            if answer is not None:
                answer.finish(group.join_result(member, members=member.id == group.leader))
        self.watch_all(group)

    def assign(self, group: KafkaGroup, work: Mapping[str, bytes], now_us: int) -> None:
        """Give each member its work: the group is stable until one comes or goes."""
        group.move(GroupState.STABLE)
        for member in group.members.values():
            member.assignment = work.get(member.id, b"")
            member.must_sync = False
            syncing, member.syncing = member.syncing, None
            if syncing is not None:
                member.touch(now_us)
                syncing.finish(SyncGroupResult(group.protocol_type, group.protocol or "", member.assignment))
        self.watch_all(group)

    def remove(self, group: KafkaGroup, member: KafkaGroupMember, now_us: int) -> None:
        """Take a member out; the others divide the work anew."""
        self._take_out(group, member)
        if group.state is GroupState.PREPARING:
            self.complete_when_ready(group, now_us)
        else:
            self.rebalance(group, now_us)

    def _take_out(self, group: KafkaGroup, member: KafkaGroupMember) -> None:
        del group.members[member.id]
        self.metadata_bytes -= member.call.metadata_bytes
        if member.call.instance is not None and group.instances.get(member.call.instance) == member.id:
            del group.instances[member.call.instance]
        if group.leader == member.id:
            group.leader = next(iter(group.members), None)
        member.refuse(no_group(group.name, Reason.GROUP_MEMBER_NOT_FOUND))

    def expire(self, group: KafkaGroup, now_us: int) -> None:
        """Remove members that were silent for too long, and complete a rebalance whose time is over."""
        for member_id in [one for one, void_us in group.named.items() if void_us <= now_us]:
            del group.named[member_id]
        silent: list[str] = []
        for member in list(group.members.values()):
            waits = member.joining is not None or member.syncing is not None
            if not waits and member.deadline_us <= now_us and member.id in group.members:
                silent.append(member.id)
                self.remove(group, member, now_us)
        log_expired(group.name, silent)
        self.complete_when_ready(group, now_us)
        if group.deadline_us > now_us:
            return
        if group.state is GroupState.PREPARING:
            if group.delay_until_us is not None and group.newcomers and now_us < group.delay_until_us:
                group.newcomers = False
                group.deadline_us = min(now_us + self._delay_us, group.delay_until_us)
            else:
                self._complete(group, now_us)
        elif group.state is GroupState.COMPLETING:
            for member in [one for one in group.members.values() if one.must_sync]:
                if member.id in group.members:
                    self.remove(group, member, now_us)
