"""Iggy's HTTP documents against exchanges recorded with the real server."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lading.dialects.iggy.classic import commands as c
from lading.dialects.iggy.classic import responses as r
from lading.dialects.iggy.classic.primitives import (
    ConsumerIdentifier,
    ConsumerKind,
    Partitioning,
    PartitioningKind,
    PollingKind,
    Strategy,
    balanced,
    to_partition,
)
from lading.dialects.iggy.http import commands
from lading.dialects.iggy.http.commands import encode_answer, identifier, parse_body, parse_query
from lading.dialects.iggy.http.errors import BodyError, error_document
from lading.dialects.iggy.http.messages import encode_polled, parse_send
from lading.dialects.iggy.http.releases import JSON_RELEASES
from lading.model.batch import SCHEMA
from lading.model.errors import CorruptError, LadingError, MalformedMessage, Reason, Refusal
from lading.model.kinds import KIND_BY_WORD, Kind
from lading.model.state import STATE_BY_WORD

VECTORS = Path(__file__).parent.parent / "vectors"
EXCHANGES = {
    exchange["name"]: exchange
    for exchange in map(json.loads, (VECTORS / "iggy_classic_http_capture.jsonl").read_text().splitlines())
}
SAMPLES = {vector["name"]: vector for vector in json.loads((VECTORS / "iggy_classic_vectors.json").read_text())}


def batch_of(documents: list[dict[str, Any]]) -> pa.RecordBatch:
    """The Batch that polled documents mean, made field by field from the specification."""
    rows = [
        {
            "offset": document["offset"],
            "state": int(STATE_BY_WORD[document["state"]]),
            "timestamp": document["timestamp"],
            "id": document["id"].to_bytes(16, "little"),
            "checksum": document["checksum"],
            "key": None,
            "headers": [
                {"key": key, "kind": int(KIND_BY_WORD[header["kind"]]), "value": base64.b64decode(header["value"])}
                for key, header in (document["headers"] or {}).items()
            ],
            "payload": base64.b64decode(document["payload"]),
        }
        for document in documents
    ]
    columns = [pa.array([row[name] for row in rows], SCHEMA.field(name).type) for name in SCHEMA.names]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


@pytest.mark.parametrize(
    "name", [name for name, each in EXCHANGES.items() if name.startswith("messages.poll") and each["status"] == 200]
)
def test_polled(name: str) -> None:
    answer = EXCHANGES[name]["response"]
    assert encode_polled(batch_of(json.loads(answer))).decode() == answer


def test_polled_sample_of_the_first_release_with_state() -> None:
    documents = SAMPLES["A.http.poll.sample"]["json_response"]
    assert json.loads(encode_polled(batch_of(documents))) == documents


def test_a_missing_checksum_is_computed_and_an_unknown_kind_is_an_error() -> None:
    batch = batch_of(json.loads(EXCHANGES["messages.poll last &count=1"]["response"]))
    at = SCHEMA.get_field_index("checksum")
    without = batch.set_column(at, SCHEMA.field("checksum"), pa.nulls(1, pa.uint32()))
    assert json.loads(encode_polled(without))[0]["checksum"] == zlib.crc32(b"b")
    headers = pa.array([[{"key": "k", "kind": 77, "value": b"v"}]], SCHEMA.field("headers").type)
    with pytest.raises(CorruptError, match="77"):
        encode_polled(batch.set_column(SCHEMA.get_field_index("headers"), SCHEMA.field("headers"), headers))


def test_sent_with_headers() -> None:
    document = parse_send(EXCHANGES["messages.send with headers"]["body"].encode())
    assert document.partitioning == to_partition(1)
    assert document.batch.schema == SCHEMA
    one, two = document.batch.to_pylist()
    assert (one["id"], one["payload"]) == ((1).to_bytes(16, "little"), b"hello")
    assert one["headers"] == [
        {"key": "key 1", "kind": 2, "value": b"value1"},
        {"key": "key-2", "kind": 3, "value": b"\x01"},
        {"key": "key_3", "kind": 12, "value": (123456).to_bytes(8, "little")},
    ]
    assert (two["id"], two["payload"], two["headers"], two["checksum"]) == (None, b"world", [], None)


def test_sent_otherwise() -> None:
    assert parse_send(EXCHANGES["messages.send largest id"]["body"].encode()).batch["id"].to_pylist() == [b"\xff" * 16]
    assert parse_send(EXCHANGES["messages.send balanced"]["body"].encode()).partitioning == balanced()
    assert parse_send(EXCHANGES["messages.send key"]["body"].encode()).partitioning == Partitioning(
        PartitioningKind.MESSAGES_KEY, b"user-123"
    )
    sample = json.dumps(SAMPLES["A.http.send.sample"]["json_request"]).encode()
    assert parse_send(sample).batch["id"].to_pylist() == [None, None]


ENTITIES: list[tuple[str, Any]] = [
    ("clients", ()),
    ("streams empty", ()),
    ("groups empty", ()),
    ("stream.get", r.StreamDetails(r.StreamInfo(1, 0, 0, 0, "stream1"), ())),
    ("streams", (r.StreamInfo(1, 0, 0, 0, "stream1"),)),
    (
        "topic.get",
        r.TopicDetails(r.TopicInfo(1, 3, 0, 0, "topic1"), [r.PartitionInfo(n, 1, 0, 0, 0) for n in (1, 2, 3)]),
    ),
    ("topics", (r.TopicInfo(1, 3, 0, 0, "topic1"),)),
    ("offset.get", r.StoredOffset(7, 1)),
    ("groups", (r.GroupInfo(1, 4, 0),)),
    ("group.get", r.GroupDetails(r.GroupInfo(1, 4, 0), ())),
    (
        "stats",
        r.StatsInfo(
            27349, 0.0, 57626624, 25276510208, 18603585536, 430, 1795249205, 585728, 1908736, 0, 0, 0, 0, 0, 0, 0, 0,
            "lab", "Debian GNU/Linux", "Linux 12 Debian GNU/Linux", "6.18.44-fc-v657",
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), ENTITIES, ids=[name for name, _ in ENTITIES])
def test_entity(name: str, value: Any) -> None:
    assert encode_answer(value).decode() == EXCHANGES[name]["response"]


def test_entities_that_were_not_recorded_follow_the_table() -> None:
    client = r.ClientDetails(r.ClientInfo(5, 1, "127.0.0.1:50000", 1), (r.ConsumerGroupInfo(3, 2, 1),))
    assert json.loads(encode_answer(client)) == {
        "id": 5, "address": "127.0.0.1:50000", "transport": "TCP", "consumer_groups_count": 1,
        "consumer_groups": [{"stream_id": 1, "topic_id": 2, "consumer_group_id": 3}],
    }  # fmt: skip
    group = r.GroupDetails(r.GroupInfo(1, 4, 1), (r.MemberInfo(9, (1, 3)),))
    assert json.loads(encode_answer(group))["members"] == [{"id": 9, "partitions_count": 2, "partitions": [1, 3]}]
    stats = r.StatsInfo(1, 0.1, *([0] * 15), "h", "o", "v", "k")  # type: ignore[arg-type, call-arg]
    assert json.loads(encode_answer(stats))["cpu_usage"] == 0.1


REFUSALS: list[tuple[str, Reason, dict[str, object]]] = [
    ("client missing", Reason.CLIENT_NOT_FOUND, {"client": 5}),
    ("stream.create same id", Reason.STREAM_ID_EXISTS, {"new_id": 1, "new_name": "x"}),
    ("stream.create same name", Reason.STREAM_NAME_EXISTS, {"new_id": 2, "new_name": "stream1"}),
    ("stream.create id 0", Reason.INVALID_STREAM_ID, {}),
    ("stream.create bad name", Reason.INVALID_STREAM_NAME, {}),
    ("stream.get missing id", Reason.STREAM_ID_NOT_FOUND, {"stream": 9}),
    ("stream.get missing name", Reason.STREAM_NAME_NOT_FOUND, {"stream": "nope"}),
    ("topic.create same id", Reason.TOPIC_ID_EXISTS, {"stream": 1, "new_id": 1, "new_name": "x"}),
    ("topic.create same name", Reason.TOPIC_NAME_EXISTS, {"stream": 1, "new_id": 2, "new_name": "topic1"}),
    ("topic.get missing", Reason.TOPIC_ID_NOT_FOUND, {"stream": 1, "topic": 9}),
    ("partitions.create 0", Reason.TOO_MANY_PARTITIONS, {}),
    ("messages.send none", Reason.INVALID_COUNT, {}),
    ("messages.send empty payload", Reason.EMPTY_PAYLOAD, {}),
    ("messages.send missing partition", Reason.PARTITION_NOT_FOUND, {"partition": 9}),
    ("messages.poll count 0", Reason.INVALID_COUNT, {}),
    ("messages.poll missing partition", Reason.PARTITION_NOT_FOUND, {"partition": 9}),
    ("offset.put too high", Reason.INVALID_OFFSET, {"offset": 99}),
    ("group.create again", Reason.GROUP_EXISTS, {"group": 1, "topic": 1}),
    ("group.get missing", Reason.GROUP_NOT_FOUND, {"group": 9, "topic": 1}),
    ("topic.delete missing", Reason.TOPIC_ID_NOT_FOUND, {"stream": 1, "topic": 1}),
    ("stream.delete missing", Reason.STREAM_ID_NOT_FOUND, {"stream": 1}),
]


@pytest.mark.parametrize(("name", "reason", "facts"), REFUSALS, ids=[name for name, _, _ in REFUSALS])
def test_error_document(name: str, reason: Reason, facts: dict[str, object]) -> None:
    status, body = error_document(Refusal(reason), facts)
    assert (status, body.decode()) == (EXCHANGES[name]["status"], EXCHANGES[name]["response"])


def test_error_document_without_the_facts_tells_the_sentence_of_the_refusal() -> None:
    _, body = error_document(Refusal(Reason.STREAM_ID_NOT_FOUND, "no stream is called so"), {})
    assert json.loads(body)["reason"] == "no stream is called so"


def command_of(name: str) -> Any:
    exchange = EXCHANGES[name]
    url = urlsplit(exchange["path"])
    body, query = (exchange["body"] or "").encode(), dict(parse_qsl(url.query))
    kind, verb = name.split()[0].split(".")
    path: dict[str, Any] = {} if kind == "stream" else {"stream": 1}
    if kind not in ("stream", "topic"):
        path["topic"] = 1
    match (kind, verb):
        case ("stream", "create"):
            return parse_body(c.CreateStream, body)
        case ("topic", "create"):
            return parse_body(c.CreateTopic, body, **path)
        case ("partitions", "create"):
            return parse_body(c.CreatePartitions, body, **path)
        case ("partitions", "delete"):
            return parse_query(c.DeletePartitions, query, **path)
        case ("group", "create"):
            return parse_body(c.CreateGroup, body, **path)
        case ("offset", "put"):
            return parse_body(c.StoreOffset, body, **path)
        case ("offset", "get"):
            return parse_query(c.GetOffset, query, **path)
        case ("messages", "poll"):
            return parse_query(c.PollMessages, query, **path)
        case ("messages", "send"):
            return parse_send(body)
    raise AssertionError(name)


def poll(kind: PollingKind, value: int, count: int, partition: int = 1, consumer: int = 0, commit: bool = False) -> Any:
    who = ConsumerIdentifier(ConsumerKind.CONSUMER, consumer)
    return c.PollMessages(who, 1, 1, partition, Strategy(kind, value), count, commit)


SEVEN = ConsumerIdentifier(ConsumerKind.CONSUMER, 7)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("stream.create", c.CreateStream(1, "stream1")),
        ("topic.create", c.CreateTopic(1, 1, 3, "topic1")),
        ("partitions.create", c.CreatePartitions(1, 1, 2)),
        ("partitions.delete", c.DeletePartitions(1, 1, 1)),
        ("group.create", c.CreateGroup(1, 1, 1)),
        ("offset.put", c.StoreOffset(SEVEN, 1, 1, 1, 0)),
        ("offset.put numeric id", c.StoreOffset(SEVEN, 1, 1, 1, 0)),  # refused by the real server, sent by its sample
        ("offset.get", c.GetOffset(SEVEN, 1, 1, 1)),
        ("messages.poll offset &value=1&count=1", poll(PollingKind.OFFSET, 1, 1)),
        ("messages.poll last &count=1", poll(PollingKind.LAST, 0, 1)),
        ("messages.poll next &id=7&count=2&auto_commit=true", poll(PollingKind.NEXT, 0, 2, consumer=7, commit=True)),
        ("messages.poll no query", poll(PollingKind.OFFSET, 0, 10)),
        ("messages.poll missing partition", poll(PollingKind.OFFSET, 0, 10, partition=9)),
    ],
)
def test_request(name: str, command: c.Command) -> None:
    assert command_of(name) == command


@pytest.mark.parametrize(
    "name",
    [
        "stream.create id 0",
        "stream.create bad name",
        "stream.create without id",
        "stream.create broken JSON",
        "partitions.create 0",
        "messages.send none",
        "messages.send empty payload",
        "messages.send unknown header kind",
        "messages.poll count 0",
        "messages.poll unknown kind",
    ],
)
def test_refused_request_has_the_recorded_status(name: str) -> None:
    with pytest.raises(LadingError) as caught:
        command_of(name)
    exchange = EXCHANGES[name]
    if isinstance(caught.value, BodyError):
        assert (caught.value.status, "text/plain") == (exchange["status"], exchange["content_type"].split(";")[0])
        assert str(caught.value).split(":")[0] == exchange["response"].split(":")[0]
    else:
        assert error_document(caught.value, {}) == (exchange["status"], exchange["response"].encode())


def send_of(message: str, partitioning: str = '{"kind":"balanced","value":""}') -> bytes:
    return f'{{"partitioning":{partitioning},"messages":[{message}]}}'.encode()


LONG = base64.b64encode(b"a" * 256).decode()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, None),
        (b"\xff", 400, None),
        (b"[" * 100_000, 400, None),
        (b'{"partitioning":NaN}', 400, None),
        (b"[]", 422, None),
        (b'{"messages":[]}', 422, None),
        (b'{"messages":[],"messages":[]}', 422, None),
        (send_of('{"payload":"!"}'), 422, None),
        (send_of('{"payload":5}'), 422, None),
        (send_of('{"payload":"eA==","id":-1}'), 422, None),
        (send_of('{"payload":"eA==","id":1.0}'), 422, None),
        (send_of('{"payload":"eA==","id":true}'), 422, None),
        (send_of('{"payload":"eA==","id":340282366920938463463374607431768211456}'), 422, None),
        (send_of('{"payload":"eA==","id":' + "9" * 5000 + "}"), 400, None),
        (send_of('{"payload":"eA==","headers":[]}'), 422, None),
        (send_of('{"payload":"eA==","headers":{"k":{"kind":"raw"}}}'), 422, None),
        (send_of('{"payload":"eA==","headers":{"\\ud800":{"kind":"raw","value":"eA=="}}}'), 422, None),
        (send_of('{"payload":"eA==","headers":{"":{"kind":"raw","value":"eA=="}}}'), 400, 4018),
        (send_of('{"payload":"eA==","headers":{"k":{"kind":"raw","value":""}}}'), 400, 4019),
        (send_of('{"payload":"eA==","headers":{"k":{"kind":"raw","value":"' + LONG + '"}}}'), 400, 4019),
        (send_of('{"payload":"eA==","headers":{"' + "k" * 256 + '":{"kind":"raw","value":"eA=="}}}'), 400, 4018),
        (
            send_of(
                '{"payload":"eA==","headers":{"k":{"kind":"raw","value":"eA=="},"k":{"kind":"raw","value":"eA=="}}}'
            ),
            400,
            4018,
        ),
        (send_of('{"payload":"eA=="}', '{"kind":"partition_id","value":"AQ=="}'), 500, 204),
        (send_of('{"payload":"eA=="}', '{"kind":"messages_key","value":""}'), 400, 4028),
        (send_of('{"payload":"eA=="}', '{"kind":"nearest","value":""}'), 422, None),
    ],
)
def test_bad_send(body: bytes, status: int, code: int | None) -> None:
    with pytest.raises(MalformedMessage) as caught:
        parse_send(body)
    if isinstance(caught.value, BodyError):
        assert (caught.value.status, None) == (status, code)
    else:
        got, document = error_document(caught.value, {})
        assert (got, json.loads(document)["id"]) == (status, code)


@given(st.binary(max_size=60) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(["partitioning", "messages", "kind", "value", "payload", "headers", "id"]), inner),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_body_is_a_send_or_malformed(body: bytes) -> None:
    try:
        parse_send(body)
    except MalformedMessage:
        return


def test_keys_that_begin_with_a_backslash_come_back_as_they_were() -> None:
    body = send_of(r'{"payload":"eA==","headers":{"\\x41":{"kind":"raw","value":"eA=="}}}')
    batch = parse_send(body).batch
    assert batch.to_pylist()[0]["headers"][0]["key"] == r"\\x41"
    assert list(json.loads(encode_polled(batch))[0]["headers"]) == [r"\x41"]


@pytest.mark.parametrize(
    ("part", "meant"), [("1", 1), ("stream1", "stream1"), ("4294967296", "4294967296"), ("-1", "-1"), ("٣", "٣")]
)
def test_identifier_in_a_path(part: str, meant: int | str) -> None:
    assert identifier(part) == meant


def test_consumer_id_by_either_name_and_form() -> None:
    for body in (b'{"id":"7","offset":3}', b'{"consumer_id":7,"offset":3}'):
        assert parse_body(c.StoreOffset, body, stream=1, topic=1) == c.StoreOffset(SEVEN, 1, 1, 1, 3)
    assert parse_query(c.GetOffset, {"consumer_id": "7"}, stream=1, topic=1).consumer == SEVEN
    with pytest.raises(BodyError):
        parse_body(c.StoreOffset, b'{"id":"seven","offset":3}', stream=1, topic=1)


@pytest.mark.parametrize("queries", [commands.QUERIES, JSON_RELEASES["0.9"].queries])
def test_java_s_names_of_a_polling_strategy(queries: commands.Parts) -> None:
    """As its SDK 0.7.0 was seen to ask."""
    said = "consumer_id=1&partition_id=1&strategy_kind=Last&strategy_value=7&count=10&auto_commit=false"
    poll = parse_query(c.PollMessages, dict(parse_qsl(said)), queries, stream="s", topic="t")
    assert poll.strategy == Strategy(PollingKind.LAST, 7)


def test_a_send_with_headers_by_key_and_the_id_in_a_header() -> None:
    """As Java's SDK 0.6.0, and the crates 0.7 and 0.8, write a message: in the form in which they poll it."""
    headers = {"a": {"kind": "int32", "value": "AQAAAA=="}}
    message = {"header": {"id": 5, "checksum": 0}, "payload": "YQ==", "user_headers": headers}
    body = json.dumps({"partitioning": {"kind": "balanced", "value": "", "size": 2}, "messages": [message]})
    batch = parse_send(body.encode()).batch
    assert batch["id"].to_pylist() == [(5).to_bytes(16, "little")]
    assert batch["headers"].to_pylist() == [[{"key": "a", "kind": int(Kind.INT32), "value": b"\1\0\0\0"}]]
