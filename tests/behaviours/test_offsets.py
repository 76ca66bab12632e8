"""Offsets: where a read begins is where it was asked to begin, and the end is the end."""

from __future__ import annotations

from tests.behaviours.rows import Sending, Session


def test_reading_begins_at_any_offset(writer: Session, reader: Session, topic: str) -> None:
    writer.create_topic(topic, 1)
    writer.send(topic, [Sending(b"%d" % number) for number in range(40)])
    writer.send(topic, [Sending(b"%d" % number) for number in range(40, 60)])
    for offset in (0, 1, 39, 40, 59):
        seen = reader.read(topic, offset=offset)
        assert [message.offset for message in seen] == list(range(offset, 60))
        assert seen[0].payload == b"%d" % offset


def test_nothing_lies_behind_the_end(client: Session, topic: str) -> None:
    client.create_topic(topic, 1)
    assert client.end(topic) == 0
    assert client.read(topic) == []
    client.send(topic, [Sending(), Sending()])
    assert client.end(topic) == 2
    assert client.read(topic, offset=2) == []


def test_a_count_bounds_what_is_read(client: Session, topic: str) -> None:
    client.create_topic(topic, 1)
    client.send(topic, [Sending(b"%d" % number) for number in range(10)])
    assert [message.payload for message in client.read(topic, offset=3, count=2)] == [b"3", b"4"]
