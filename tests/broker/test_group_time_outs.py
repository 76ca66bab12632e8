"""Time-outs of coordinated groups: one group that fails holds up no other, and is tried again."""

from __future__ import annotations

from typing import Any

import pytest

from lading.broker.core.component import NEVER_US, SOON_US
from lading.broker.kafka.group import KafkaGroup
from lading.broker.kafka.group_time_outs import GROUPS_AT_ONCE, RETRY_US, GroupTimeOuts
from lading.broker.kafka.share_group import ShareGroup


def test_a_group_whose_time_outs_fail_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """An exception while share groups were walked left all of them without time-outs."""
    called: list[int] = []
    time_outs = GroupTimeOuts(lambda: called.append(time_outs.due_us))
    groups: dict[str, Any] = {name: ShareGroup(name) for name in ("a", "b", "c")} | {"classic": KafkaGroup("classic")}
    walked: list[str] = []

    def expire(group: ShareGroup, now_us: int) -> None:
        walked.append(group.name)
        if group.name == "a":
            raise OSError("the disk is full")
        if group.name == "c":
            time_outs.watch(now_us + 2 * RETRY_US)

    time_outs.watch(500)
    time_outs.watch(700)
    assert (time_outs.due_us, called) == (500, [500])
    time_outs.expire(groups, ShareGroup, expire, 499)
    assert not walked
    time_outs.expire(groups, ShareGroup, expire, 500)
    assert walked == ["a", "b", "c"] and "group 'a': time-outs failed" in caplog.text
    assert time_outs.due_us == 500 + RETRY_US
    del groups["a"], groups["c"]
    time_outs.expire(groups, ShareGroup, expire, time_outs.due_us)
    assert time_outs.due_us == NEVER_US


def test_many_groups_are_walked_in_several_ticks() -> None:
    """All were in one pass of the loop: 43 ms for 10,000."""
    time_outs = GroupTimeOuts(lambda: None)
    groups: dict[str, Any] = {f"g{number}": ShareGroup(f"g{number}") for number in range(2 * GROUPS_AT_ONCE + 1)}
    walked: list[str] = []

    def expire(group: ShareGroup, now_us: int) -> None:
        walked.append(group.name)
        # of a group that is looked at first
        time_outs.watch(900)

    time_outs.watch(500)
    for count in (GROUPS_AT_ONCE, 2 * GROUPS_AT_ONCE):
        time_outs.expire(groups, ShareGroup, expire, 500)
        assert (len(walked), time_outs.due_us) == (count, SOON_US)
    del groups["g0"]
    time_outs.expire(groups, ShareGroup, expire, 500)
    # one was deleted meanwhile, and each of the others had its turn once
    assert sorted(walked) == sorted(groups)
    assert time_outs.due_us == 900
    time_outs.expire(groups, ShareGroup, expire, 899)
    assert len(walked) == len(groups)
