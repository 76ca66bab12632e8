"""The nodes of each topic: our own node, those that serve the same topics, and registered ones (nsq.md 5.3)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ....broker.core.siblings import SiblingAddress
from ....model.errors import Refusal
from ....runtime.turns import CallbackQueue, TurnCounter, Turns, sort_in_turns
from ..fork import VERSION

if TYPE_CHECKING:
    from ....broker.core.topology import Topic
    from ...base.services import Services
    from ..nsqd.node import Node


TOMBSTONE_S: Final = 45.0
"""How long a tombstone is in effect, as in upstream."""
TOMBSTONES_MAX: Final = 10_000
INDEXED_AT_ONCE: Final = 20
"""Topics from which one callback removes a disconnected node; a few callbacks run in each pass of the loop."""
NODES_SHARE: Final = 10
"""All nodes together may register this many times as much as one node."""


@dataclass(slots=True)
class RegistrationCount:
    """The number of registrations of all nodes, counted on each change, as there may be thousands of nodes."""

    count: int = 0


@dataclass(slots=True, eq=False)
class NsqdProducer:
    """A node as it described itself by IDENTIFY; ``topics`` has its partitions by topic, each with its channels."""

    remote_address: str
    hostname: str
    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str
    distributed_id: str = ""
    topics: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    registrations_count: int = 0
    """Number of partitions and channels in ``topics``."""
    total: RegistrationCount = field(default_factory=RegistrationCount)
    """Registrations of all nodes, including this one's."""
    nodes_by_topic: dict[str, set[NsqdProducer]] = field(default_factory=dict)
    """The nodes that have a topic, this one included; shared by all nodes."""

    def register(self, topic: str, partition: int, channel: str) -> None:
        """Add a partition, and a channel of it unless ``channel`` is empty."""
        partitions = self.topics.get(topic)
        if partitions is None:
            partitions = self.topics[topic] = {}
            self.nodes_by_topic.setdefault(topic, set()).add(self)
        channels = partitions.get(partition)
        if channels is None:
            channels = partitions[partition] = set()
            self._count(1)
        if channel and channel not in channels:
            channels.add(channel)
            self._count(1)

    def _count(self, more: int) -> None:
        self.registrations_count += more
        self.total.count += more

    def unregister(self, topic: str, partition: int, channel: str) -> None:
        """Remove a channel of a partition, or the whole partition."""
        partitions = self.topics.get(topic, {})
        channels = partitions.get(partition)
        if channels is None:
            return
        if channel:
            self._count(-(channel in channels))
            channels.discard(channel)
            return
        del partitions[partition]
        self._count(-1 - len(channels))
        if not partitions:
            del self.topics[topic]
            self.leave_index(topic)

    def leave_index(self, topic: str) -> None:
        """Remove this node from the index of a topic, so that lookups do not return it."""
        nodes = self.nodes_by_topic[topic]
        nodes.discard(self)
        if not nodes:
            del self.nodes_by_topic[topic]

    @property
    def http_address(self) -> str:
        """Return the address by which tombstones name this node."""
        return f"{self.broadcast_address}:{self.http_port}"

    def document(self) -> dict[str, Any]:
        """Return the node as lookups describe it."""
        return {
            "id": self.remote_address,
            "remote_address": self.remote_address,
            "hostname": self.hostname,
            "broadcast_address": self.broadcast_address,
            "tcp_port": self.tcp_port,
            "http_port": self.http_port,
            "version": self.version,
            "distributed_id": self.distributed_id,
        }


class Lookup:
    """The registry of one nsqlookupd. ``of(services)`` gives the same one to both of its endpoints."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.others: set[NsqdProducer] = set()
        self._total = RegistrationCount()
        self._by_topic: dict[str, set[NsqdProducer]] = {}
        """Nodes by topic; some may have disconnected, and are removed in turns."""
        self._removals = CallbackQueue(lambda callback: asyncio.get_running_loop().call_soon(callback))
        self._tombstones: dict[tuple[str, str], tuple[float, bytes]] = {}
        """The end of each tombstone, and our topic of that name, by topic and node (its HTTP address)."""

    def has_room(self, producer: NsqdProducer, count_max: int) -> bool:
        """Return whether a node may register more topics and channels; each node may have ``count_max`` of them."""
        if producer.registrations_count >= count_max:
            return False
        return self._total.count < NODES_SHARE * count_max

    def add(self, producer: NsqdProducer) -> None:
        """Add a node that has registered nothing yet."""
        producer.total, producer.nodes_by_topic = self._total, self._by_topic
        self.others.add(producer)

    def remove(self, producer: NsqdProducer) -> None:
        """Remove a node, and in turns its registrations, which may be a hundred thousand topics."""
        if producer in self.others:
            self.others.discard(producer)
            self._total.count -= producer.registrations_count
            self._removals.call(_leave_index(producer))

    def _producers_of(self, topic: str) -> list[NsqdProducer]:
        """Return the nodes that have the topic, our own first; our own list only this topic."""
        own: list[Topic] = []
        with suppress(Refusal):
            own.append(self._node.find(topic))
        producers = [
            *self._describe_self({one.flat_name: self._channels_of(one) for one in own}),
            *self._sort_others(topic),
        ]
        return [one for one in producers if topic in one.topics]

    def _sort_others(self, topic: str | None = None) -> list[NsqdProducer]:
        """Return the other nodes, or those of a topic, by their addresses."""
        others = self.others if topic is None else self._others_of(topic)
        return sorted(others, key=lambda one: one.remote_address)

    def _others_of(self, topic: str) -> set[NsqdProducer]:
        """Return the other nodes that have a topic."""
        return self._by_topic.get(topic, set()) & self.others

    def _list_producers(self) -> Turns[list[NsqdProducer]]:
        """Return every node with all that it has, our own first."""
        topics, turn = {}, TurnCounter()
        for topic in list(self._node.topics()):
            topics[topic.flat_name] = self._channels_of(topic)
            if turn.is_over(1 + len(topic.partitions)):
                yield
        return [*self._describe_self(topics), *self._sort_others()]

    def _channels_of(self, topic: Topic) -> dict[int, set[str]]:
        channels = {channel.name for channel in self._node.channels.of_topic(topic)}
        return {partition.number: channels for partition in topic.partitions}

    def _describe_self(self, topics: dict[str, dict[int, set[str]]]) -> list[NsqdProducer]:
        node = self._node
        tcp, http = node.tcp_address(), node.http_address()
        if tcp is None:
            return []
        own = SiblingAddress(node.hostname, tcp.host, tcp.port, http.port if http is not None else 0)
        return [
            NsqdProducer(f"{one.host}:{one.tcp_port}", *one, VERSION, topics=topics)
            for one in (own, *sorted(node.broker.siblings.list_others()))
        ]

    def tombstone(self, topic: str, node: str) -> None:
        """Leave one node out of lookups of a topic for a while, so that the topic can be deleted there."""
        now_s, tombstones = time.monotonic(), self._tombstones
        tombstones.pop((topic, node), None)
        # tombstones all last equally long, so the oldest come first
        while tombstones and (next(iter(tombstones.values()))[0] <= now_s or len(tombstones) >= TOMBSTONES_MAX):
            del tombstones[next(iter(tombstones))]
        tombstones[topic, node] = (now_s + TOMBSTONE_S, self._own_id(topic))

    def remove_tombstone(self, topic: str, node: str) -> None:
        """Remove the tombstone of a topic at one node."""
        self._tombstones.pop((topic, node), None)

    def _is_tombstoned(self, topic: str, producer: NsqdProducer) -> bool:
        until_s, own_id = self._tombstones.get((topic, producer.http_address), (0.0, b""))
        # a topic that was created again under the name is another topic
        return time.monotonic() < until_s and own_id == self._own_id(topic)

    def _own_id(self, topic: str) -> bytes:
        try:
            return self._node.find(topic).uuid
        except Refusal:
            return b""

    def forget(self, topic: str, channel: str = "") -> bool:
        """Remove other nodes' registrations of a topic or channel, until they register again.

        Return whether there were any.
        """
        found = False
        for one in self._others_of(topic):
            for partition, channels in list(one.topics.get(topic, {}).items()):
                found |= not channel or channel in channels
                one.unregister(topic, partition, channel)
        return found

    def topics(self) -> Turns[list[str]]:
        """Return names of all topics, in turns."""
        names: set[str] = set()
        for one in (yield from self._list_producers()):
            names.update(one.topics)
            yield
        return (yield from sort_in_turns(names))

    def channels(self, topic: str) -> list[str]:
        """Return names of a topic's channels."""
        partitions = (one.topics.get(topic, {}) for one in self._producers_of(topic))
        return sorted({channel for some in partitions for channels in some.values() for channel in channels})

    def knows(self, topic: str) -> bool:
        """Return whether any node has the topic."""
        return bool(self._producers_of(topic))

    def lookup(self, topic: str, partition: int = -1) -> dict[str, Any]:
        """Return the nodes of a topic, and the nodes of each of its partitions; partition -1 stands for any."""
        found = [one for one in self._producers_of(topic) if not self._is_tombstoned(topic, one)]
        numbers = {number: one for one in reversed(found) for number in one.topics[topic]}
        if partition >= 0:
            numbers = {number: one for number, one in numbers.items() if number == partition}
            found = [one for one in found if partition in one.topics[topic]]
        return {
            "channels": self.channels(topic),
            "producers": [one.document() for one in found],
            "partitions": {str(number): one.document() for number, one in sorted(numbers.items())},
        }

    def nodes(self) -> Turns[list[dict[str, Any]]]:
        """Return all nodes with what they have, in turns."""
        documents, turn = [], TurnCounter()
        for one in (yield from self._list_producers()):
            topics = yield from sort_in_turns(one.topics)
            partitions, tombstones = {}, []
            for name in topics:
                partitions[name] = [str(number) for number in sorted(one.topics.get(name, ()))]
                tombstones.append(self._is_tombstoned(name, one))
                if turn.is_over():
                    yield
            document = {**one.document(), "tombstones": tombstones, "topics": topics, "partitions": partitions}
            del document["id"], document["distributed_id"]
            documents.append(document)
        return documents


def _leave_index(producer: NsqdProducer) -> Iterator[Callable[[], None]]:
    """Return callbacks, each of which removes a disconnected node from the index for a few topics."""
    topics = iter(producer.topics)
    while some := list(islice(topics, INDEXED_AT_ONCE)):
        yield partial(_leave_topics, producer, some)


def _leave_topics(producer: NsqdProducer, topics: list[str]) -> None:
    for topic in topics:
        producer.leave_index(topic)


def of(services: Services) -> Lookup:
    """Return the registry of this process's services; the same one each time."""
    from ..nsqd.node import of as node_of

    lookup: Lookup = services.shared.get(Lookup) or Lookup(node_of(services))
    services.shared[Lookup] = lookup
    return lookup
