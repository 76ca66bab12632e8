"""What was sent is read, once, in order, by every client, whoever sent it."""

from __future__ import annotations

from tests.behaviours.rows import Sending, Session


def test_messages_are_read_once_and_in_order(writer: Session, reader: Session, topic: str) -> None:
    writer.create_topic(topic, 1)
    writer.send(topic, [Sending(b"%d" % number) for number in range(250)])
    seen = reader.read(topic)
    assert [message.payload for message in seen] == [b"%d" % number for number in range(250)]
    assert [message.offset for message in seen] == list(range(250))


def test_two_writers_share_one_order(writer: Session, reader: Session, topic: str) -> None:
    writer.create_topic(topic, 1)
    for number in range(5):
        writer.send(topic, [Sending(b"w%d" % number)])
        reader.send(topic, [Sending(b"r%d" % number)])
    expected = [b"%s%d" % (who, number) for number in range(5) for who in (b"w", b"r")]
    assert [message.payload for message in reader.read(topic)] == expected
    assert [message.payload for message in writer.read(topic)] == expected


def test_payload_bytes_are_exact(writer: Session, reader: Session, topic: str) -> None:
    payloads = [bytes(range(256)), b"\0", b"\xff" * 70_000, "ü".encode()]
    writer.create_topic(topic, 1)
    writer.send(topic, [Sending(payload) for payload in payloads])
    assert [message.payload for message in reader.read(topic)] == payloads


def test_null_and_empty_payloads_are_different(writer: Session, reader: Session, topic: str) -> None:
    writer.create_topic(topic, 1)
    # with a key, without which some clients send no null
    writer.send(topic, [Sending(payload, key=b"k") for payload in (None, b"", b"\0")])
    assert [message.payload for message in reader.read(topic)] == [None, b"", b"\0"]


def test_keys_are_exact(writer: Session, reader: Session, topic: str) -> None:
    keys = [None, b"", b"k", b"\xff\0"]
    writer.create_topic(topic, 1)
    writer.send(topic, [Sending(key=key) for key in keys])
    assert [message.key for message in reader.read(topic)] == keys


def test_equal_keys_share_a_partition(writer: Session, reader: Session, topic: str) -> None:
    writer.create_topic(topic, 5)
    writer.send(topic, [Sending(b"%d" % number, key=b"key-%d" % (number % 7)) for number in range(70)])
    places: dict[bytes | None, set[int]] = {}
    for partition in range(5):
        for message in reader.read(topic, partition):
            places.setdefault(message.key, set()).add(partition)
    assert len(places) == 7
    assert all(len(where) == 1 for where in places.values())


def test_a_named_partition_is_the_one_written(writer: Session, reader: Session, topic: str) -> None:
    writer.create_topic(topic, 3)
    writer.send(topic, [Sending(b"here")], partition=2)
    assert [len(reader.read(topic, partition)) for partition in range(3)] == [0, 0, 1]


def test_messages_without_a_key_go_to_every_partition(writer: Session, reader: Session, topic: str) -> None:
    writer.create_topic(topic, 3)
    writer.send(topic, [Sending(b"%d" % number) for number in range(30)])
    assert [len(reader.read(topic, partition)) for partition in range(3)] == [10, 10, 10]
