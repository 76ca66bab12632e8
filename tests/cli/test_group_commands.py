"""Groups reset and deleted on the command line, as clients of each protocol see it."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition

from lading import Consumer, Producer, testing
from lading.transports.iggy.transport import IggyTransport

from .conftest import Run, documents


@pytest.fixture
def topic(lading: Run, request: pytest.FixtureRequest) -> Iterator[str]:
    name: str = request.node.originalname.removeprefix("test_")
    lading("topic", "create", name, "--partitions", "2")
    lading("message", "send", name, "--lines", "--partition", "0", stdin="a\nb\nc\nd\n")
    lading("message", "send", name, "--lines", "--partition", "1", stdin="e\nf\n")
    yield name
    lading("topic", "delete", name, "--yes")


@contextmanager
def closing_member(member: Any) -> Iterator[Any]:
    yield member
    member.leave()


def kafka(broker: testing.BrokerProcess, group: str) -> KafkaConsumer:
    return KafkaConsumer({"bootstrap.servers": broker.endpoints["kafka"], "group.id": group})


def committed(client: KafkaConsumer, topic: str) -> list[int]:
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    return [one.offset for one in client.committed(places, 10)]


def positions(said: str) -> list[tuple[Any, ...]]:
    return [(row["partition"], row["position"], row["new_position"]) for row in map(json.loads, said.splitlines())]


@pytest.mark.turns(2)
@pytest.mark.parametrize("scheme", ["lading", "kafka"])
def test_a_kafka_group(lading: Run, broker: testing.BrokerProcess, topic: str, scheme: str) -> None:
    """Asked for at the admin endpoint, and as from any Kafka cluster."""
    server = ("--server", broker.url if scheme == "lading" else f"kafka://{broker.endpoints['kafka']}")
    client = kafka(broker, "shop")
    client.commit(offsets=[TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 2)], asynchronous=False)
    again = ("group", "reset", "shop", *server, "-o", "json")
    assert positions(lading(*again, "--to", "earliest", "--dry-run").stdout) == [(0, 3, 0), (1, 2, 0)]
    assert committed(client, topic) == [3, 2]
    assert positions(lading(*again, "--shift", "-1", "--partition", "0").stdout) == [(0, 3, 2)]
    assert committed(client, topic) == [2, 2]
    # past the end is the end, before the beginning is the beginning
    lading(*again, "--to", "3", "--topic", topic)
    assert committed(client, topic) == [3, 2]
    lading(*again, "--shift", "-3")
    assert committed(client, topic) == [0, 0]
    lading(*again, "--to", datetime(2099, 1, 1, tzinfo=UTC).isoformat())
    assert committed(client, topic) == [4, 2]
    lading(*again, "--to", "-1", "--partition", "1")
    assert committed(client, topic) == [4, 1]
    client.close()
    reader = kafka(broker, "shop")
    reader.subscribe([topic])
    reader.poll(10)
    try:
        for refused in (("reset", "shop", "--to", "latest"), ("delete", "shop", "--yes")):
            said = lading("group", *refused, *server, code=2).stderr
            assert re.search(
                "kafka group 'shop' has (1 member|members), which would go on where they are; stop them", said
            )
        (group,) = [row for row in documents(lading("group", "list", *server, "-o", "json")) if row["group"] == "shop"]
        assert (group["state"], group["members"]) == ("Stable", 1)
        assert "kafka group: Stable" in lading("group", "show", "shop", *server).stderr
    finally:
        reader.close()
    lading("group", "delete", "shop", "--yes", *server)
    assert [row for row in documents(lading("group", "list", *server, "-o", "json")) if row["group"] == "shop"] == []
    assert committed(kafka(broker, "shop"), topic) == [-1001, -1001]
    for gone in (("show", "shop"), ("delete", "shop", "--yes"), ("reset", "shop", "--to", "latest")):
        assert "kafka group 'shop' does not exist" in lading("group", *gone, *server, code=2).stderr


def test_an_iggy_group(lading: Run, broker: testing.BrokerProcess, topic: str) -> None:
    url = f"iggy://{broker.endpoints['iggy_tcp']}"
    with closing(IggyTransport(url)) as transport, closing_member(transport.join("7", [topic])) as member:
        # as other clients do: the server stores the positions of the group itself
        polled = [member.poll_next(topic, 10, auto_commit=True).count for _ in range(2)]
        assert sorted(polled) == [2, 4]
    lading("group", "reset", f"{topic}/7", "--to", "3")
    with closing(IggyTransport(url)) as transport, closing_member(transport.join("7", [topic])) as member:
        polled = [member.poll_next(topic, 10, auto_commit=True).count for _ in range(2)]
        assert sorted(polled) == [0, 1]
    lading("group", "delete", f"{topic}/7", "--yes")

    def read() -> list[bytes]:
        with Consumer(url, topic, group="7", start="earliest", timeout_s=0) as consumer:
            return sorted(message.payload or b"" for message in consumer)

    assert read() == [b"a", b"b", b"c", b"d", b"e", b"f"]
    (name,) = [row["group"] for row in documents(lading("group", "list", "-o", "json")) if row["protocol"] == "iggy"]
    assert read() == []
    lading("group", "reset", name, "--shift", "-1")
    assert read() == [b"d", b"f"]
    lading("group", "reset", name, "--to", "earliest", "--partition", "1")
    assert read() == [b"e", b"f"]
    with Consumer(url, topic, group="7", timeout_s=0) as consumer:
        list(consumer)
        assert "has 1 member" in lading("group", "reset", name, "--to", "earliest", code=2).stderr
    lading("group", "delete", name, "--yes")
    assert f"iggy group '{name}' does not exist" in lading("group", "show", name, "-p", "iggy", code=2).stderr


def test_an_nsq_channel(lading: Run, broker: testing.BrokerProcess, topic: str) -> None:
    http = f"http://{broker.endpoints['nsqd_http']}"

    def post(path: str) -> None:
        urllib.request.urlopen(urllib.request.Request(http + path, method="POST"), timeout=10).close()

    def depth() -> dict[str, int]:
        with urllib.request.urlopen(f"{http}/stats?format=json&topic={topic}", timeout=10) as answer:
            (found,) = json.load(answer)["topics"]
        return {one["channel_name"]: one["depth"] for one in found["channels"]}

    post(f"/channel/create?topic={topic}&channel=audit")
    assert depth() == {"audit": 6}
    lading("group", "reset", f"{topic}/audit", "--to", "latest")
    assert depth() == {"audit": 0}
    lading("group", "reset", f"{topic}/audit", "--shift", "-3", "--partition", "0")
    assert depth() == {"audit": 3}
    (row,) = [row for row in documents(lading("group", "list", "-o", "json")) if row["protocol"] == "nsq"]
    assert row == {
        "protocol": "nsq",
        "group": f"{topic}/audit",
        "state": "Empty",
        "generation": 0,
        "lag": 3,
        "members": 0,
    }
    lading("group", "delete", f"{topic}/audit", "--yes")
    assert depth() == {}


def test_a_native_group(lading: Run, broker: testing.BrokerProcess, topic: str) -> None:
    def read() -> int:
        with Consumer(broker.url, topic, group="ops", start="earliest", timeout_s=0) as consumer:
            found = len(list(consumer))
            if not found:
                return 0
            assert "has 1 member" in lading("group", "delete", "ops", "--yes", code=2).stderr
            return found

    assert [read(), read()] == [6, 0]
    lading("group", "reset", "ops", "--to", "1")
    assert read() == 4
    lading("group", "delete", "ops", "--yes")
    assert read() == 6


def test_what_cannot_be_reset(lading: Run, broker: testing.BrokerProcess, topic: str) -> None:
    with Producer(broker.url) as producer:
        producer.send(topic, b"g", partition=1)
    client = kafka(broker, "few")
    client.commit(offsets=[TopicPartition(topic, 1, 1)], asynchronous=False)
    client.close()
    for arguments, says in (
        (("few",), "either --to earliest, latest, OFFSET or TIME, or --shift N"),
        (("few", "--to", "latest", "--shift", "1"), "either --to"),
        (("few", "--to", "someday"), "--to 'someday': it is not a place in a topic; write earliest"),
        (("few", "--to", "latest", "--partition", "0"), "has no position there to be reset"),
        (("few", "--to", "latest", "--topic", topic, "-p", "kafka", "--partition", "5"), "no position there"),
        (("few", "--to", "latest", "--topic", "nowhere"), "nowhere"),
        (("none", "--to", "latest"), "kafka group 'none' does not exist"),
    ):
        assert says in lading("group", "reset", *arguments, code=2).stderr, arguments
    # a topic that it has not read yet, named
    lading("group", "reset", "few", "--to", "latest", "--topic", topic)
    assert committed(kafka(broker, "few"), topic) == [4, 3]
    assert "not a terminal" in lading("group", "delete", "few", code=2).stderr.lower()


def test_a_filter_is_previewed_set_explained_and_removed(lading: Run, topic: str) -> None:
    lading("message", "send", topic, "--lines", "--partition", "0", "--header", "tenant=a", stdin="g\nh\n")
    where = ("filter", "tenants", "--where", "tenant = 'a'")
    preview = lading("group", *where, "--preview", "--topic", topic, "-o", "json")
    rows = [(row["partition"], row["messages"], row["selected"]) for row in documents(preview)]
    assert rows == [(0, 6, 2), (1, 2, 0)]
    assert "2 of 8 messages selected" in preview.stderr
    assert "has no filter" in lading("group", "filter", "tenants", code=2).stderr
    said = lading("group", *where, "--client-id", "worker").stderr
    assert "'tenants', 'consumer-tenants-N', 'worker'" in said
    assert lading("group", "filter", "tenants").stderr == said
    assert (
        "rdkafka" in lading("group", "filter", "tenants", "--where", "a = 1", "--client-id", "rdkafka", code=2).stderr
    )
    assert "--where" in lading("group", "filter", "tenants", "--preview", code=2).stderr
    assert "128" in lading("group", "filter", "tenants", "--where", " or ".join(["a = 1"] * 65), code=2).stderr
    lading("group", "filter", "tenants", "--remove")
    assert "has no filter" in lading("group", "filter", "tenants", "--remove", code=2).stderr
    assert (
        "groups of native have no filters"
        in lading("group", "filter", "any", "--where", "a = 1", "--protocol", "native", code=2).stderr
    )


def test_members_of_an_iggy_group_poll_what_its_filter_selects(
    lading: Run, broker: testing.BrokerProcess, topic: str
) -> None:
    lading("message", "send", topic, "--lines", "--partition", "0", "--header", "tenant=a", stdin="g\nh\n")
    url = f"iggy://{broker.endpoints['iggy_tcp']}"
    with closing(IggyTransport(url)) as transport, closing_member(transport.join("9", [topic])) as member:
        lading("group", "filter", f"{topic}/9", "--where", "tenant = 'a'")
        polled = [member.poll_next(topic, 10, auto_commit=True).count for _ in range(2)]
        assert sorted(polled) == [0, 2]
        shown = lading("group", "show", f"{topic}/9", "-o", "json")
    (group,) = documents(shown)
    assert (group["filter"]["where"], group["lag"]) == ("tenant = 'a'", 0)
