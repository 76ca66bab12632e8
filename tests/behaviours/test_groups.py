"""Consumer groups: a group goes on where it stopped, and groups do not disturb each other."""

from __future__ import annotations

from tests.behaviours.rows import Sending, Session


def test_a_group_goes_on_where_it_stopped(client: Session, topic: str) -> None:
    client.create_topic(topic, 1)
    client.send(topic, [Sending(b"%d" % number) for number in range(10)])
    first = client.read_as_group(topic, "7", 4)
    second = client.read_as_group(topic, "7", 6)
    assert [message.payload for message in first + second] == [b"%d" % number for number in range(10)]


def test_groups_do_not_share_positions(client: Session, topic: str) -> None:
    client.create_topic(topic, 1)
    client.send(topic, [Sending(b"%d" % number) for number in range(3)])
    for group in ("1", "2"):
        assert [message.payload for message in client.read_as_group(topic, group, 3)] == [b"0", b"1", b"2"]


def test_one_member_reads_every_partition(client: Session, topic: str) -> None:
    client.create_topic(topic, 3)
    client.send(topic, [Sending(b"%d" % number) for number in range(12)])
    seen = client.read_as_group(topic, "5", 12)
    assert sorted(int(message.payload or b"-1") for message in seen) == list(range(12))
