"""Iggy classic commands against exchanges recorded with the real server and vectors computed from the layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lading.dialects.iggy.classic import commands as c
from lading.dialects.iggy.classic.command_table import REQUEST_HEAD, RESPONSE_HEAD, CommandSpec, error_frame, ok_frame
from lading.dialects.iggy.classic.errors import CODE_OF, ERRORS, code_of, name_of
from lading.dialects.iggy.classic.primitives import (
    ConsumerIdentifier,
    ConsumerKind,
    PollingKind,
    Strategy,
    balanced,
    to_partition,
)
from lading.dialects.iggy.classic.records import validate
from lading.dialects.iggy.classic.responses import (
    ClientDetails,
    ClientInfo,
    ConsumerGroupInfo,
    GroupDetails,
    GroupInfo,
    MemberInfo,
    PartitionInfo,
    StatsInfo,
    StoredOffset,
    StreamDetails,
    StreamInfo,
    TopicDetails,
    TopicInfo,
)
from lading.model.errors import LocalError, MalformedMessage, Reason, Refusal

VECTORS = Path(__file__).parent.parent / "vectors"
EXCHANGES = [json.loads(line) for line in (VECTORS / "iggy_classic_capture.jsonl").read_text().splitlines()]
HEX = {
    vector["name"]: bytes.fromhex(vector["hex"])
    for vector in json.loads((VECTORS / "iggy_classic_vectors.json").read_text())
    if "hex" in vector
}


def split(frame: bytes) -> tuple[int, bytes]:
    length, code = REQUEST_HEAD.unpack_from(frame)
    assert length == len(frame) - 4
    return code, frame[8:]


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange["name"])
def test_recorded_exchange(exchange: dict[str, str]) -> None:
    frame, answer = bytes.fromhex(exchange["request_hex"]), bytes.fromhex(exchange["response_hex"])
    code, payload = split(frame)
    if exchange["name"] == "message.poll (count 0)":
        with pytest.raises(MalformedMessage) as caught:
            c.parse_request(code, payload)
        assert error_frame(code_of(caught.value)) == answer
        return
    command = c.parse_request(code, payload)
    assert c.encode_request(command) == frame
    status, length = RESPONSE_HEAD.unpack_from(answer)
    assert length == len(answer) - 8
    if status:
        assert error_frame(status) == answer
        assert ERRORS[status].name == name_of(status)
    else:
        assert ok_frame(c.encode_response(command, c.parse_response(command, answer[8:]))) == answer


STREAM, TOPIC = StreamInfo(1, 1, 100, 2, "str1"), TopicInfo(1, 2, 100, 2, "top1")
CLIENT = ClientInfo(937784362, 1, "127.0.0.1:50000", 1)
RESPONSES: list[tuple[str, type[Any], Any]] = [
    ("A.offset.get.response", c.GetOffset, StoredOffset(1, 5)),
    ("A.stream.get.response", c.GetStream, StreamDetails(STREAM, (TOPIC,))),
    ("A.stream.list.response", c.GetStreams, (STREAM,)),
    (
        "A.topic.get.response",
        c.GetTopic,
        TopicDetails(TOPIC, (PartitionInfo(1, 1, 1, 50, 2), PartitionInfo(2, 1, 1, 50, 2))),
    ),
    ("A.topic.list.response", c.GetTopics, (TOPIC,)),
    ("A.group.get.response", c.GetGroup, GroupDetails(GroupInfo(3, 2, 1), (MemberInfo(43981, (1, 2)),))),
    ("A.group.list.response", c.GetGroups, (GroupInfo(3, 2, 1),)),
    ("A.client.list.response", c.GetClients, (CLIENT,)),
    ("A.client.get_or_me.response", c.Me, ClientDetails(CLIENT, (ConsumerGroupInfo(3, 2, 1),))),
    (
        "A.stats.response",
        c.Stats,
        StatsInfo(42, 1.5, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, "host", "linux", "6", "k"),
    ),
]


@pytest.mark.parametrize(("name", "command", "result"), RESPONSES, ids=[row[0] for row in RESPONSES])
def test_response_vector(name: str, command: type[Any], result: Any) -> None:
    assert c.encode_response(command, result) == HEX[name]
    assert c.parse_response(command, HEX[name]) == result


ONE, GROUP = ConsumerIdentifier(ConsumerKind.CONSUMER, 1), ConsumerIdentifier(ConsumerKind.GROUP, 7)
REQUESTS: list[tuple[str, c.Command]] = [
    (
        "A.poll.request.unit_test_inputs",
        c.PollMessages(ONE, 2, 3, 4, Strategy(PollingKind.OFFSET, 2), 3, True),
    ),
    (
        "A.poll.request.go_unit_test_golden",
        c.PollMessages(
            ConsumerIdentifier(ConsumerKind.CONSUMER, 42),
            "test_stream_id",
            "test_topic_id",
            123,
            Strategy(PollingKind.FIRST),
            100,
            True,
        ),
    ),
    ("A.offset.get.request", c.GetOffset(ONE, 2, 3, 4)),
    ("A.offset.store.request", c.StoreOffset(ONE, 2, 3, 4, 5)),
    ("A.stream.create.request", c.CreateStream(1, "test")),
    ("A.topic.create.request", c.CreateTopic(1, 2, 3, "test")),
    ("A.partitions.create.request", c.CreatePartitions(1, 2, 3)),
    ("A.group.join.request", c.JoinGroup(1, 2, 3)),
    (
        "A.send.request.unit_test_inputs",
        c.SendMessages(1, 2, to_partition(4), HEX["A.send.request.unit_test_inputs"][18:]),
    ),
]


@pytest.mark.parametrize(("name", "command"), REQUESTS, ids=[row[0] for row in REQUESTS])
def test_request_vector(name: str, command: c.Command) -> None:
    code, payload = split(c.encode_request(command))
    assert payload == HEX[name]
    assert c.parse_request(code, payload) == command


@pytest.mark.parametrize(
    ("code", "payload", "error"),
    [
        (99, b"", 3),
        (1, b"x", 3),
        (200, b"", 3),
        (200, bytes.fromhex("0105 0100000000"), 3),
        (200, bytes.fromhex("0200"), 3),
        (200, bytes.fromhex("0302 6161"), 3),
        (200, bytes.fromhex("02ff 6161"), 3),
        (200, bytes.fromhex("0201 ff"), 3),
        (21, bytes(4), 101),
        (202, bytes(4) + b"a", 1014),
        (202, bytes.fromhex("01000000"), 1013),
        (202, bytes.fromhex("01000000") + b"a/b", 1013),
        (202, bytes.fromhex("01000000") + b"\xff", 1013),
        (202, bytes.fromhex("01000000") + b"   ", 1013),
        (202, bytes.fromhex("01000000") + b"a" * 256, 1013),
        (302, bytes.fromhex("010401000000 00000000 01000000") + b"a", 2016),
        (302, bytes.fromhex("010401000000 01000000 01000000") + b"!", 2014),
        (302, bytes.fromhex("010401000000 01000000 a1860100") + b"a", 2015),
        (402, bytes.fromhex("010401000000 010401000000 00000000"), 2015),
        (403, bytes.fromhex("010401000000 010401000000 a1860100"), 2015),
        (602, bytes.fromhex("010401000000 010401000000 00000000"), 5003),
        (101, bytes.fromhex("010401000000 010401000000 0100"), 4009),
        (101, bytes.fromhex("010401000000 010401000000 0200 00"), 4028),
        (101, bytes.fromhex("010401000000 010401000000 0300 00"), 4028),
        (101, bytes.fromhex("010401000000 010401000000 0203 010000 00"), 204),
        (101, bytes.fromhex("010401000000 010401000000 0900 00"), 3),
        (100, bytes.fromhex("0301000000 010401000000 010401000000"), 3),
        (100, bytes.fromhex("0101000000 010401000000 010401000000 01000000 060000000000000000 01000000 00"), 3),
        (100, bytes.fromhex("0101000000 010401000000 010401000000 01000000 010000000000000000 01000000 02"), 3),
    ],
)
def test_a_bad_request_has_the_code_of_its_fault(code: int, payload: bytes, error: int) -> None:
    with pytest.raises(MalformedMessage) as caught:
        c.parse_request(code, payload)
    assert code_of(caught.value) == error


def test_what_the_real_server_reads_over_is_read_over() -> None:
    assert c.parse_request(200, bytes.fromhex("010401000000 ffff")) == c.GetStream(1)
    assert c.parse_request(200, bytes.fromhex("010400000000")) == c.GetStream(0)
    send = c.parse_request(101, bytes.fromhex("010401000000 010401000000 0102abcd 00"))
    assert isinstance(send, c.SendMessages)
    assert send.partitioning == balanced()


@given(code=st.sampled_from([row.code for row in c.TABLE.rows]), payload=st.binary(max_size=80))
def test_any_bytes_are_a_command_or_malformed(code: int, payload: bytes) -> None:
    try:
        command = c.parse_request(code, payload)
    except MalformedMessage:
        return
    frame_code, again = split(c.encode_request(command))
    assert c.parse_request(frame_code, again) == command


@given(row=st.sampled_from(c.TABLE.rows), body=st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_malformed(row: CommandSpec, body: bytes) -> None:
    try:
        result = c.parse_response(row.request, body)
    except MalformedMessage:
        return
    again = c.encode_response(row.request, result)
    assert row.request is c.Stats or again == body  # a NaN's payload bits may change


def test_huge_list_count_takes_no_memory() -> None:
    member_of_four_billion = bytes.fromhex("010000000100000001000000 05000000 ffffffff 01000000")
    with pytest.raises(MalformedMessage):
        c.parse_response(c.GetGroup, member_of_four_billion)


def test_values_that_do_not_fit_are_named_before_sending() -> None:
    with pytest.raises(LocalError, match="does not fit"):
        c.encode_request(c.GetClient(1 << 32))
    with pytest.raises(LocalError, match="256 bytes"):
        c.encode_request(c.GetStream("a" * 256))


def test_rules_hold_for_commands_built_from_http_as_well() -> None:
    with pytest.raises(Refusal) as caught:
        validate(c.CreateStream(0, "x"))
    assert caught.value.reason == Reason.INVALID_STREAM_ID
    validate(c.CreateStream(1, "x"))


def test_every_code_of_a_reason_is_in_the_table() -> None:
    assert len(ERRORS) == 110
    assert set(CODE_OF.values()) <= set(ERRORS)
    assert code_of(Refusal(Reason.STALE_GENERATION)) == 1
