"""Parameters of a SUB: topic, channel, partition and start (nsq.md 1.4, 1.8)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from ....broker.core.offsets_for_times import offset_at
from ....dialects.nsq import commands, limits
from ....dialects.nsq.commands import Line
from ....dialects.nsq.errors import NsqProtocolError
from ....model.errors import Refusal
from ....model.lazy_dataclass import lazy_dataclass

if TYPE_CHECKING:
    from ....broker.channels import Channel
    from ....broker.core.topology import Partition, Topic
    from .node import Node

_START: Final = re.compile(r"(timestamp|virtual_queue|msgcount|special):(-?[0-9]{1,18})")
Start = tuple[str, int]
_WITHOUT_NODES: Final = "Not supported while coordinator disabled"


@lazy_dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """Topic and start of a subscription; ``partition`` None stands for all of them."""

    topic: Topic
    channel: str
    partition: int | None
    start: Start | None

    def move(self, channel: Channel) -> None:
        """Start the channel at the client's position, if this is the channel's first client."""
        if self.start is None or channel.subscribers:
            return
        seek_channel(channel, self.partition, self.start)


def seek_channel(channel: Channel, number: int | None, start: Start) -> None:
    """Move the position of a channel in one partition, or in all of them."""
    kind, value = start
    for partition in channel.topic.partitions:
        if number in (None, partition.number):
            channel.seek(partition.number, _OFFSETS[kind](partition, value))


_OFFSETS: Final[Mapping[str, Callable[[Partition, int], int]]] = {
    "special": lambda partition, value: partition.log.last_stable_offset,
    "msgcount": lambda partition, value: partition.log.first_offset + max(value, 0),
    # a queue offset is an offset of messages here
    "virtual_queue": lambda partition, value: max(value, 0),
    "timestamp": lambda partition, value: offset_at(partition, value * 1_000_000),
}
"""The offset that each form of a start has in a partition."""


def parse_subscribe(node: Node, line: Line) -> SubscribeRequest:
    """Return the subscription that the line requests. Raises NsqProtocolError if it is impossible."""
    name = line.command.name
    topic_name, channel = (word.decode(errors="replace") for word in line.parameters[:2])
    if not limits.is_name(topic_name):
        raise NsqProtocolError("E_BAD_TOPIC", f'{name} topic name "{topic_name}" is not valid')
    if not limits.is_name(channel):
        raise NsqProtocolError("E_BAD_CHANNEL", f'{name} channel name "{channel}" is not valid')
    number = commands.partition_of(line.parameters[2]) if len(line.parameters) > 2 else -1
    start = _parse_start(node, line) if len(line.parameters) > 3 else None
    topic = _find_topic(node, topic_name, number)
    return SubscribeRequest(topic, channel, number if number >= 0 else None, start)


def parse_start(text: str) -> Start | None:
    """Parse a start such as ``timestamp:1700000000``; return None for other text."""
    found = _START.fullmatch(text)
    return None if found is None else (found[1], int(found[2]))


def _parse_start(node: Node, line: Line) -> Start | None:
    if line.command.name != "SUB_ADVANCED":
        return None
    text = line.parameters[3].decode(errors="replace")
    found = parse_start(text)
    if found is None:
        raise NsqProtocolError("E_INVALID", f"invalid consume offset:{text}")
    if node.strict and found[0] != "special":
        raise NsqProtocolError("E_INVALID", _WITHOUT_NODES)
    return found


def _find_topic(node: Node, name: str, number: int) -> Topic:
    try:
        topic = node.find(name)
    except Refusal:
        if node.strict:
            raise NsqProtocolError("E_TOPIC_NOT_EXIST") from None
        raise node.need(lambda: node.create(name)) from None
    if number >= len(topic.partitions) or not topic.partitions:
        raise NsqProtocolError("E_TOPIC_NOT_EXIST")
    return topic
