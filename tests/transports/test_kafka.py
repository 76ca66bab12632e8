"""``kafka://``: what a URL may be, and what happens when nobody or somebody else answers, or an answer is lost."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from lading import Consumer, Producer, testing
from lading.model.errors import CorruptError, Reason, Refusal, SettingError, Unreachable
from lading.testing.held_ports import PortHolder
from lading.transports.kafka.cluster import GROUP
from lading.transports.kafka.transport import KafkaTransport, bootstrap
from lading.transports.open import open_transport
from tests.listeners import listen_only
from tests.transports.proxy import Proxy, proxy

# kafka.protocol reads its schemas in a way that importlib.resources wants no more
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_addresses_in_a_url() -> None:
    assert bootstrap("kafka://one,two:1234, [::1]:9093/") == [("one", 9092), ("two", 1234), ("::1", 9093)]


@pytest.mark.parametrize("url", ["kafka://", "kafka://a:b", "kafka://a/topic", "kafka://a,,b", "kafka://a:99999"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(SettingError, match=r"kafka://127\.0\.0\.1:9092"):
        open_transport(url)


def test_a_password_is_no_part_of_the_url() -> None:
    with pytest.raises(SettingError, match="options"):
        open_transport("kafka://ann:secret@host:9092")
    with pytest.raises(SettingError, match="username"):
        open_transport("kafka://host", password="secret")
    with pytest.raises(SettingError, match="true or false"):
        open_transport("kafka://host", tls="perhaps")
    transport = KafkaTransport("kafka://host", username="ann", password="secret")
    assert "secret" not in repr(transport._cluster._access)


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(Unreachable, match=f"no Kafka broker reachable at 127.0.0.1:{port}"):
        KafkaTransport(f"kafka://127.0.0.1:{port}").topic("t")
    with pytest.raises(Unreachable, match=f"no Kafka broker reachable at 127.0.0.1:{port}"):
        KafkaTransport(f"kafka://127.0.0.1:{port}").join("g", ["t"])


def test_somebody_else_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(CorruptError, match="speaks HTTP, not Kafka; name the address of a Kafka broker"):
            KafkaTransport(f"kafka://127.0.0.1:{server.getsockname()[1]}", timeout_s=5).topic("t")
        thread.join(5)


@pytest.fixture
def group_behind_proxy(ports: PortHolder) -> Iterator[tuple[KafkaTransport, Proxy]]:
    """A transport that reaches a broker, which has the group ``g``, by a proxy only."""
    address = ports.hold()
    with proxy(address) as between:
        url = f"127.0.0.1:{between.port}"
        settings = listen_only(kafka=address, admin=testing.FREE_PORT) | {"endpoints.kafka.advertised": url}
        with testing.broker(settings=settings):
            with Producer(f"kafka://{url}") as producer:
                producer.send("t", b"x")
            with Consumer(f"kafka://{url}", "t", group="g", start="earliest") as consumer:
                assert next(consumer).payload == b"x"
                consumer.commit()
            transport = KafkaTransport(f"kafka://{url}")
            assert transport.group("kafka", "g")["state"] == "Empty"
            yield transport, between
            transport.close()


def test_a_refusal_leaves_the_connection_open(group_behind_proxy: tuple[KafkaTransport, Proxy]) -> None:
    transport, _ = group_behind_proxy
    with pytest.raises(Refusal) as refused:
        transport.delete_group("kafka", "none")
    assert refused.value.reason is Reason.GROUP_NOT_FOUND
    assert transport._cluster.coordinator(GROUP, "none").open


@pytest.mark.parametrize("request_arrives", [True, False])
@pytest.mark.turns(2)
def test_a_group_whose_deletion_was_not_answered_is_deleted(
    group_behind_proxy: tuple[KafkaTransport, Proxy], request_arrives: bool
) -> None:
    """The request is repeated over a new connection; the group is gone already."""
    transport, between = group_behind_proxy
    if request_arrives:
        between.lose_answers = 1
    else:
        transport.delete_group("kafka", "g")
        transport.close()
        between.refuse_connections = 1
    if request_arrives:
        transport.delete_group("kafka", "g")
        assert between.lose_answers == 0
    with pytest.raises(Refusal, match="'g' does not exist"):
        transport.delete_group("kafka", "g")
    assert between.refuse_connections == 0
