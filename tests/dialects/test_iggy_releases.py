"""The table of Iggy's releases: which is told from what, and the captured requests of their clients."""

from __future__ import annotations

import contextlib
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lading.dialects.iggy.classic import commands as c
from lading.dialects.iggy.classic.command_table import CommandSpec
from lading.dialects.iggy.classic.later_commands import GetSnapshot, LoginUser
from lading.dialects.iggy.classic.primitives import (
    ConsumerIdentifier,
    ConsumerKind,
    Identifier,
    PollingKind,
    Strategy,
)
from lading.dialects.iggy.classic.releases import (
    BY_NAME,
    RELEASES,
    UNTOLD,
    Release,
    guess_release,
)
from lading.dialects.iggy.classic.snapshots import SnapshotCompression, SnapshotPart
from lading.endpoints.iggy.handlers import narrow
from lading.model.errors import MalformedMessage, Reason, Refusal
from tests.dialects.iggy_classic import VECTORS

HEAD = struct.Struct("<II")

CLIENTS = {
    "iggy-py_0.1.0": "0.1",
    "iggy-py_0.2.0": "0.4",
    "iggy-py_0.2.7": "0.6.60",
    "iggy-py_0.4.0": "0.6.60",
    "apache-iggy_0.5.0": "0.7",
    "apache-iggy_0.6.0": "0.8",
    "apache-iggy_0.7.0": "0.9",
    "apache-iggy_0.8.0": "0.10",
}
"""The release that each published client embeds."""


@pytest.mark.parametrize(
    ("version", "release"),
    [
        (None, "0.4"),
        ("", "0.10"),
        ("something", "0.10"),
        ("0.4.9", "0.5"),
        ("0.5.0", "0.5"),
        ("0.6.0", "0.5"),
        ("0.6.9", "0.5"),
        ("0.6.10", "0.6"),
        ("0.6.59", "0.6"),
        ("0.6.202", "0.6.60"),
        ("0.7.0", "0.7"),
        ("0.8.2-edge.2", "0.8"),
        ("0.8.3-edge.1", "0.9"),
        ("0.9", "0.9"),
        ("0.10.0", "0.10"),
        ("1.0.0", "0.10"),
        ("9" * 400, "0.10"),
    ],
)
def test_a_login_tells_the_newest_release_that_is_not_newer(version: str | None, release: str) -> None:
    assert guess_release(version).release.name == release


def test_every_release_has_a_name_of_its_own_and_logs_in() -> None:
    assert [BY_NAME[release.name] for release in RELEASES] == list(RELEASES)
    login = bytes.fromhex("0469676779 0469676779")
    for release in RELEASES:
        assert release.commands.parse_request(38, login) == LoginUser("iggy", "iggy")
    with_version = login + bytes.fromhex("07000000 302e362e323032 00000000")
    assert UNTOLD.commands.parse_request(38, with_version) == LoginUser("iggy", "iggy", "0.6.202")


def test_snapshots_are_asked_for_since_0_6() -> None:
    asked = BY_NAME["0.6"].commands.parse_request(11, b"\x02\x02\x01\x05")
    parts = (SnapshotPart.FILESYSTEM_OVERVIEW, SnapshotPart.SERVER_LOGS)
    assert asked == GetSnapshot(SnapshotCompression.DEFLATED, parts)
    for release, payload in (("0.6", b"\x02\x02\x01"), ("0.6", b"\x07\x00"), ("0.4", b"\x02\x00")):
        with pytest.raises(MalformedMessage) as caught:
            BY_NAME[release].commands.parse_request(11, payload)
        assert caught.value.reason in (Reason.UNKNOWN_COMMAND, Reason.MALFORMED)


def captured(client: str) -> dict[str, tuple[int, bytes]]:
    """Code and payload of each request that a client was seen to send, by the name of the request."""
    found = {}
    for entry in json.loads((VECTORS / "iggy_release_captures.json").read_text()):
        if entry["name"].startswith(f"capture.{client}."):
            frame = bytes.fromhex(entry["hex"])
            length, code = HEAD.unpack_from(frame)
            assert length == len(frame) - 4
            found[entry["name"].split(".")[-2]] = code, frame[8:]
    assert found
    return found


EXPECTED: dict[str, tuple[c.CreateStream, c.CreateTopic, tuple[Identifier, Identifier]]] = {
    # what each client was told to do: create str1 and top1 with 3 partitions, poll partition 1 from the next message
    "iggy-py_0.1.0": (c.CreateStream(1, "str1"), c.CreateTopic(1, 1, 3, "top1"), (1, 1)),
    "iggy-py_0.2.0": (c.CreateStream(1, "str1"), c.CreateTopic(1, 1, 3, "top1"), (1, 1)),
    "iggy-py_0.2.7": (c.CreateStream(None, "str1"), c.CreateTopic("str1", None, 3, "top1"), ("str1", "top1")),
    "iggy-py_0.4.0": (c.CreateStream(None, "str1"), c.CreateTopic("str1", None, 3, "top1"), ("str1", "top1")),
    "apache-iggy_0.5.0": (c.CreateStream(None, "str1"), c.CreateTopic("str1", None, 3, "top1"), ("str1", "top1")),
    "apache-iggy_0.6.0": (c.CreateStream(None, "str1"), c.CreateTopic("str1", None, 3, "top1"), ("str1", "top1")),
    "apache-iggy_0.7.0": (c.CreateStream(None, "str1"), c.CreateTopic("str1", None, 3, "top1"), ("str1", "top1")),
    "apache-iggy_0.8.0": (c.CreateStream(None, "str1"), c.CreateTopic("str1", None, 3, "top1"), ("str1", "top1")),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_the_captured_requests_of_each_client_say_what_it_was_told(client: str) -> None:
    requests = captured(client)
    code, payload = requests["login_user"]
    login = UNTOLD.commands.parse_request(code, payload)
    assert (login.name, login.password) == ("iggy", "iggy")
    release, others = guess_release(login.version, login.context)
    assert release.name == (CLIENTS[client] if login.version else "0.4")
    if others:
        # a login without a version: how it creates a topic tells
        (release,) = narrow(others, requests["create_topic"][0], memoryview(requests["create_topic"][1]))
    assert release.name == CLIENTS[client]
    stream, topic, (stream_of_poll, topic_of_poll) = EXPECTED[client]
    assert release.commands.parse_request(*requests["create_stream"]) == stream
    assert release.commands.parse_request(*requests["create_topic"]) == topic
    poll = release.commands.parse_request(*requests["poll_messages"])
    # those that count from 0 were told to poll partition 1, as consumer 0
    partition = 1 + 1 - release.first_partition
    next_ = Strategy(PollingKind.NEXT)
    assert poll == c.PollMessages(poll.consumer, stream_of_poll, topic_of_poll, partition, next_, 10, True)
    assert poll.consumer == ConsumerIdentifier(ConsumerKind.CONSUMER, release.first_partition)
    for name, (code, payload) in requests.items():
        if name != "send_messages":
            command = release.commands.parse_request(code, payload)
            again = release.commands.encode_request(command)
            assert HEAD.unpack_from(again) == (4 + len(payload), code), name
            if name != "create_topic":
                # the replication factor is not kept
                assert again[8:] == payload, name


@pytest.mark.parametrize("name", [one for one, release in CLIENTS.items() if release in ("0.1", "0.4", "0.6.60")])
def test_sends_of_the_classic_form_are_those_of_0_0_40(name: str) -> None:
    release = BY_NAME[CLIENTS[name]]
    code, payload = captured(name)["send_messages"]
    send = release.commands.parse_request(code, payload)
    assert (code, send.partitioning.partition_id) == (101, 1)
    assert [b"hello" in bytes(send.messages), b"world" in bytes(send.messages)] == [True, True]


def test_polled_messages_as_the_clients_of_four_releases_took_them() -> None:
    """What iggy-py 0.1.0, 0.2.0, 0.2.7 and 0.4.0 decoded."""
    vectors = json.loads((VECTORS / "iggy_release_captures.json").read_text())
    body = next(bytes.fromhex(one["hex"]) for one in vectors if one["name"].endswith("accepted_by_iggy_py_0.1_to_0.4"))
    for name in ("0.1", "0.4", "0.6", "0.6.60"):
        release = BY_NAME[name]
        polled = release.commands.parse_response(c.PollMessages, body)
        assert (polled.partition_id, polled.current_offset, polled.count) == (1, 1, 2)
        assert release.commands.encode_response(c.PollMessages, polled) == body


@given(code=st.sampled_from([0, *range(10, 50), *range(100, 123), *range(200, 206), *range(300, 306), 402, 403,
    *range(600, 606)]), payload=st.binary(max_size=80), release=st.sampled_from(RELEASES))  # fmt: skip
def test_any_bytes_are_a_command_or_refused(code: int, payload: bytes, release: Release) -> None:
    try:
        command = release.commands.parse_request(code, payload)
    except (MalformedMessage, Refusal):
        return
    again = release.commands.encode_request(command)
    assert release.commands.parse_request(code, again[8:]) == command


@given(row=st.sampled_from([row for release in RELEASES for row in release.commands.rows]), body=st.binary(max_size=99))
def test_any_bytes_are_an_answer_or_malformed(row: CommandSpec, body: bytes) -> None:
    with contextlib.suppress(MalformedMessage):
        row.answer.write(row.answer.read(memoryview(body), 0)[0])


LOGINS = [
    # as the SDKs for Java were seen to log in
    ("04 69676779 04 69676779 13000000 696767792d6a6176612d73646b2f302e382e30 00000000", "0.10"),
    ("04 69676779 04 69676779 13000000 696767792d6a6176612d73646b2f302e372e30 00000000", "0.9"),
    ("04 69676779 04 69676779 06000000 302e362e3330 08000000 6a6176612d73646b", "0.8"),
    # those for Go and Node leave both fields empty
    ("04 69676779 04 69676779 00000000 00000000", "0.10"),
    # and a crate says its version
    ("04 69676779 04 69676779 06000000 302e362e3330 00000000", "0.6"),
]


@pytest.mark.parametrize(("hexed", "release"), LOGINS)
def test_clients_in_other_languages_are_known_by_their_logins(hexed: str, release: str) -> None:
    login = UNTOLD.commands.parse_request(38, bytes.fromhex(hexed))
    assert guess_release(login.version, login.context).release.name == release


@pytest.mark.parametrize(
    ("name", "key", "count", "partition"),
    [
        # xxHash32 with seed 0 of the empty and of known texts: the reference values of its specification and of xxhsum
        ("0.6", b"a", 7, 0x550D7456 % 7 or 7),
        ("0.6", b"abc", 5, 0x32D153FF % 5 or 5),
        ("0.6", b"abc", 0x32D153FF, 0x32D153FF),
        ("0.10", b"a", 7, 0x550D7456 % 7 + 1),
        ("0.10", b"abc", 0x32D153FF, 1),
        ("0.0.40", b"k1", 3, 2),
        ("0.0.30", b"user-123", 3, 1),
    ],
)
def test_a_key_means_a_partition_by_the_hash_of_its_release(name: str, key: bytes, count: int, partition: int) -> None:
    assert BY_NAME[name].partition_of_key(key, count) == partition
