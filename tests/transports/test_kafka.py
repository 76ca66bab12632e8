"""``kafka://`` without a broker: what a URL may be, and what happens when nobody or somebody else answers."""

from __future__ import annotations

import socket
import threading

import pytest

from lading.model.errors import CorruptError, SettingError, Unreachable
from lading.transports.kafka.transport import KafkaTransport, bootstrap
from lading.transports.open import open_transport

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
        with pytest.raises(CorruptError, match="is it a Kafka broker"):
            KafkaTransport(f"kafka://127.0.0.1:{server.getsockname()[1]}", timeout_s=5).topic("t")
        thread.join(5)
