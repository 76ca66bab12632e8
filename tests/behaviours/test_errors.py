"""What goes wrong is an error that says what, and everything else goes on."""

from __future__ import annotations

import pytest

from lading.model.errors import LadingError
from tests.behaviours.rows import Sending, Session


def test_an_unknown_topic_is_an_error(client: Session, topic: str) -> None:
    # so that it is the topic which is missing, not also the stream
    client.create_topic(topic, 1)
    with pytest.raises(LadingError, match="nowhere"):
        client.read("nowhere")
    client.send(topic, [Sending(b"still here")])
    assert [message.payload for message in client.read(topic)] == [b"still here"]


def test_a_topic_is_created_once(client: Session, topic: str) -> None:
    client.create_topic(topic, 1)
    with pytest.raises(LadingError, match=topic):
        client.create_topic(topic, 1)


def test_an_unknown_partition_is_an_error(client: Session, topic: str) -> None:
    client.create_topic(topic, 1)
    with pytest.raises(LadingError, match="partition"):
        client.send(topic, [Sending()], partition=9)
    client.send(topic, [Sending(b"next")])
    assert client.read(topic)[-1].payload == b"next"
