"""A real Kafka cluster of small nodes, which may be killed and started again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lading.testing.held_ports import PortHolder
from tests.interop import kafka_broker

HEAP = "256m"
NODES = 3
REPLICATED = ("offsets.topic", "transaction.state.log")


@dataclass
class Node:
    """One node; the only controller, of several nodes, is not to be killed."""

    directory: Path
    port: int
    secure_port: int
    child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.child = kafka_broker.start(self.directory, HEAP)
        kafka_broker.wait_until_ready(self.child, self.directory, self.port)

    def kill(self) -> None:
        """End it without a warning."""
        assert self.child is not None
        self.child.kill()
        self.child.wait()


@dataclass
class Nodes:
    """The cluster; nodes by their Kafka id, from 1. Over TLS they answer who trusts ``ca_file``."""

    ca_file: Path
    nodes: dict[int, Node] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """All brokers."""
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes.values())

    @property
    def secure(self) -> str:
        """All brokers over TLS, for the user of ``kafka_broker``."""
        return ",".join(f"127.0.0.1:{node.secure_port}" for node in self.nodes.values())

    @property
    def url(self) -> str:
        """As Lading's transports are told."""
        return f"kafka://{self.address}"


@contextmanager
def running(directory: Path, count: int = NODES, controllers: int = 1) -> Iterator[Nodes]:
    """Three nodes with their data under ``directory``; they are ended with the block.

    The first ``controllers`` are controllers too.
    """
    directory.mkdir(parents=True, exist_ok=True)
    cluster = Nodes(kafka_broker.certificate(directory))
    holder = PortHolder()
    try:
        ports = [int(holder.hold().rpartition(":")[2]) for _ in range(2 * count)]
        voters = {number: int(holder.hold().rpartition(":")[2]) for number in range(1, controllers + 1)}
        for number, (port, secure) in enumerate(zip(ports[::2], ports[1::2], strict=True), 1):
            home = directory / str(number)
            home.mkdir()
            secured = kafka_broker.secure_settings(directory)
            kafka_broker.write_settings(
                home, secured | _settings(home, number, (port, secure), voters, min(count, NODES))
            )
            cluster.nodes[number] = Node(home, port, secure)
            cluster.nodes[number].child = kafka_broker.start(home, HEAP)
        for node in cluster.nodes.values():
            assert node.child is not None
            kafka_broker.wait_until_ready(node.child, node.directory, node.port)
        yield cluster
    finally:
        for node in reversed(list(cluster.nodes.values())):
            if node.child is not None and node.child.poll() is None:
                node.child.kill()
                node.child.wait()
        holder.close()


def _settings(
    directory: Path, number: int, ports: tuple[int, int], voters: Mapping[int, int], copies: int
) -> dict[str, str]:
    is_controller = number in voters
    advertised = f"PLAINTEXT://127.0.0.1:{ports[0]},SECURE://127.0.0.1:{ports[1]}"
    listeners = advertised + (f",CONTROLLER://127.0.0.1:{voters[number]}" if is_controller else "")
    return {
        "process.roles": "broker,controller" if is_controller else "broker",
        "node.id": str(number),
        "controller.quorum.voters": ",".join(f"{one}@127.0.0.1:{port}" for one, port in voters.items()),
        "listeners": listeners,
        "advertised.listeners": advertised,
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
        "log.dirs": str(directory / "data"),
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "300",
        "replica.lag.time.max.ms": "3000",
        "min.insync.replicas": str(min(copies, 2)),
        "default.replication.factor": str(copies),
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.min.session.timeout.ms": "10000",
        "group.consumer.session.timeout.ms": "10000",
        # channels outlive the node that has their states
        "share.coordinator.state.topic.replication.factor": str(copies),
        "share.coordinator.state.topic.min.isr": str(min(copies, 2)),
        "share.coordinator.state.topic.num.partitions": "1",
        **{f"{name}.replication.factor": str(copies) for name in REPLICATED},
        **{f"{name}.num.partitions": "1" for name in REPLICATED},
    }
