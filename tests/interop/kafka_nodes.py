"""A real Kafka cluster of three small nodes, of which two may be killed and started again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop import kafka_broker

HEAP = "256m"
NODES = 3
REPLICATED = ("offsets.topic", "transaction.state.log")


@dataclass
class Node:
    """One node; the first is the controller too and is not to be killed."""

    directory: Path
    port: int
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
    """The cluster; nodes by their Kafka id, from 1."""

    nodes: dict[int, Node] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """All brokers."""
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes.values())

    @property
    def url(self) -> str:
        """As Lading's transports are told."""
        return f"kafka://{self.address}"


@contextmanager
def running(directory: Path) -> Iterator[Nodes]:
    """Three nodes with their data under ``directory``; they are ended with the block."""
    controller, *ports = kafka_broker.free_ports(NODES + 1)
    cluster = Nodes()
    try:
        for number, port in enumerate(ports, 1):
            home = directory / str(number)
            home.mkdir(parents=True)
            kafka_broker.write_settings(home, _settings(home, number, port, controller))
            cluster.nodes[number] = Node(home, port)
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


def _settings(directory: Path, number: int, port: int, controller: int) -> dict[str, str]:
    leads = number == 1
    listeners = f"PLAINTEXT://127.0.0.1:{port}" + (f",CONTROLLER://127.0.0.1:{controller}" if leads else "")
    return {
        "process.roles": "broker,controller" if leads else "broker",
        "node.id": str(number),
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": listeners,
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(directory / "data"),
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "300",
        "replica.lag.time.max.ms": "3000",
        "min.insync.replicas": "2",
        "default.replication.factor": "3",
        "group.initial.rebalance.delay.ms": "0",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        **{f"{name}.replication.factor": "3" for name in REPLICATED},
        **{f"{name}.num.partitions": "1" for name in REPLICATED},
    }
