"""Iggy's release table as a whole: each row has a handler, and each side reads what the other one writes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from lading.dialects.iggy.classic import commands as c
from lading.dialects.iggy.classic import later_commands as later
from lading.dialects.iggy.classic import responses as r
from lading.dialects.iggy.classic.releases import RELEASES, Release
from lading.dialects.iggy.current import commands as current
from lading.dialects.iggy.current.codecs import PatchedResource
from lading.dialects.iggy.current.operations import READS, WRITES
from lading.dialects.iggy.current.releases import RELEASE_0_11, RELEASE_0_12, RELEASE_0_12_2
from lading.endpoints.iggy.rights import COMMAND_RIGHTS
from lading.endpoints.iggy.service import HANDLERS
from tests.endpoints.every_request import _IGGY_VALUES

NEWEST = (RELEASE_0_11, RELEASE_0_12, RELEASE_0_12_2)
OF_SESSIONS = {
    c.PollMessages, c.SendMessages, later.LoginUser, later.LoginWithToken, current.Register, current.PollDeferred,
    current.FetchMessages, current.CancelDeferred, current.UpdateResource,
}  # fmt: skip
"""Messages, logins, and patches, which are other commands."""
ADMINISTRATORS = {current.GetMetadataChanges}
"""Commands that need a right on all, which is what a command without a row needs."""


@pytest.mark.parametrize("release", (*RELEASES, *NEWEST), ids=lambda release: release.name)
def test_every_row_has_a_handler_and_a_right(release: Release) -> None:
    commands = {row.request for row in release.commands.rows} - OF_SESSIONS
    assert commands <= HANDLERS.keys()
    assert commands - ADMINISTRATORS <= COMMAND_RIGHTS.keys()


@pytest.mark.parametrize("release", NEWEST, ids=lambda release: release.name)
def test_a_request_is_read_as_it_was_written(release: Release) -> None:
    values = {
        **_IGGY_VALUES, "stream": 7, "topic": "t", "group_id": 1, "user": 4,
        "resource": PatchedResource("stream", (3,)),
    }  # fmt: skip
    for row in (*READS.values(), *WRITES.values()):
        names = [one.name for one in fields(row.request)]
        # the server chooses ids, and bounds of a topic are options
        chosen = {"stream_id", "topic_id", "expiry_us", "size_bytes_max", "version"} & set(names)
        own: dict[str, Any] = {**values, **dict.fromkeys(chosen)}
        if row.request is current.Register:
            own = {"version": 1, "sdk_name": "n", "sdk_version": "v", "rest": b"x"}
        elif row.request is c.CreateGroup:
            own["group_id"] = None
        command = row.request(**{name: own.get(name) for name in names})
        frame = release.commands.encode_request(command)
        assert release.commands.parse_request(row.code, frame[8:]) == command, row.name


TOPIC = r.TopicInfo(1, 2, 3, 4, "t", 5, None, None)
STREAM = r.StreamInfo(1, 1, 2, 3, "s", 4)
GROUP = r.GroupInfo(2, 3, 1, "g")
CLIENT = r.ClientInfo(9, 1, "127.0.0.1:1", 1, 1)
USER = r.UserInfo(1, 2, 1, "ann")


@pytest.mark.parametrize(
    ("command", "result"),
    [
        (c.GetStream, r.StreamDetails(STREAM, (TOPIC,))),
        (c.GetStream, None),
        (c.GetStreams, (STREAM,)),
        (c.GetTopics, (TOPIC, TOPIC)),
        (c.GetTopic, r.TopicDetails(TOPIC, (r.PartitionInfo(1, 2, 3, 4, 5, 6),))),
        (c.GetGroup, r.GroupDetails(GROUP, (r.MemberInfo(4, (1, 3)),))),
        (c.GetGroups, (GROUP,)),
        (c.Me, r.ClientDetails(CLIENT, (r.ConsumerGroupInfo(3, 2, 1),))),
        (c.GetOffset, r.StoredOffset(0, 7, 1, 9)),
        (c.GetOffset, None),
        (later.GetUser, r.UserDetails(USER, None)),
        (later.GetUsers, (USER,)),
        (later.GetClusterMetadata, r.ClusterInfo("c", (r.NodeInfo("n", "h", (1, 2, 3, 4)),))),
        (current.SyncGroup, current.GroupAssignment(5, (1, 2))),
        (current.SyncGroup, None),
        (current.GetPartitionRoute, current.PartitionRoute(1, 0, 0, 3, 0)),
        (current.DescribeOptions, (current.OptionInfo("k", 2, b"v", "words"),)),
    ],
)
@pytest.mark.parametrize("release", NEWEST, ids=lambda release: release.name)
def test_a_response_is_read_as_it_was_written(release: Release, command: type[Any], result: Any) -> None:
    body = release.commands.encode_response(command, result)
    assert release.commands.parse_response(command, body) == result
