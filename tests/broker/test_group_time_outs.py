"""Time-outs of coordinated groups: one group that fails holds up no other, and is tried again."""

from __future__ import annotations

from typing import Any

import pytest

from lading.broker.core.component import NEVER_US
from lading.broker.kafka.group import KafkaGroup
from lading.broker.kafka.group_time_outs import RETRY_US, GroupTimeOuts
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
