"""Where topics are: our own node, always as it is now, and other nodes that have registered (nsq.md 5.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .node import VERSION

if TYPE_CHECKING:
    from ..interface import Services
    from .node import Node


@dataclass(slots=True, eq=False)
class Producer:
    """A node, as it has identified itself; ``topics`` is partitions by topic, each with its channels."""

    remote_address: str
    hostname: str
    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str
    distributed_id: str = ""
    topics: dict[str, dict[int, set[str]]] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As lookups tell of it."""
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
    """The registry of one nsqlookupd. ``of(services)`` gives the same one to both of its faces."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.others: set[Producer] = set()

    def producers(self) -> list[Producer]:
        """Every node there is, our own first."""
        return [*self._own(), *sorted(self.others, key=lambda one: one.remote_address)]

    def _own(self) -> list[Producer]:
        node = self._node
        tcp, http = node.advertised_tcp(), node.advertised_http()
        if tcp is None:
            return []
        topics = {
            topic.flat_name: {
                partition.number: {channel.name for channel in node.channels.of_topic(topic)}
                for partition in topic.partitions
            }
            for topic in node.topics()
        }
        address = str(tcp)
        http_port = http.port if http is not None else 0
        return [Producer(address, node.hostname, tcp.host, tcp.port, http_port, VERSION, topics=topics)]

    def topics(self) -> list[str]:
        """Names of all topics."""
        return sorted({name for one in self.producers() for name in one.topics})

    def channels(self, topic: str) -> list[str]:
        """Names of a topic's channels."""
        partitions = (one.topics.get(topic, {}) for one in self.producers())
        return sorted({channel for some in partitions for channels in some.values() for channel in channels})

    def lookup(self, topic: str, partition: int = -1) -> dict[str, Any]:
        """Which nodes have a topic, and which of them each partition; partition -1 is any."""
        found = [one for one in self.producers() if topic in one.topics]
        numbers = {number: one for one in reversed(found) for number in one.topics[topic]}
        if partition >= 0:
            numbers = {number: one for number, one in numbers.items() if number == partition}
            found = [one for one in found if partition in one.topics[topic]]
        return {
            "channels": self.channels(topic),
            "producers": [one.document() for one in found],
            "partitions": {str(number): one.document() for number, one in sorted(numbers.items())},
        }

    def nodes(self) -> list[dict[str, Any]]:
        """All nodes with what they have."""
        told = []
        for one in self.producers():
            topics = sorted(one.topics)
            partitions = {name: [str(number) for number in sorted(one.topics[name])] for name in topics}
            document = {
                **one.document(),
                "tombstones": [False] * len(topics),
                "topics": topics,
                "partitions": partitions,
            }
            del document["id"], document["distributed_id"]
            told.append(document)
        return told


def of(services: Services) -> Lookup:
    """The registry of this process's services; the same one each time."""
    from .node import of as node_of

    lookup: Lookup = services.shared.get(Lookup) or Lookup(node_of(services))
    services.shared[Lookup] = lookup
    return lookup
