"""The servers at the addresses that suites have written into them, ours and the real one, alone in their network."""

from __future__ import annotations

import fcntl
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from lading import testing
from lading.settings.settings import Settings
from tests.interop import go_programs, kafka_broker

_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 1


def open_loopback() -> None:
    """Switch on the loopback of a new network, in which it is off (netdevice(7))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def _usual_addresses() -> dict[str, object]:
    return {f"endpoints.{name}.address": str(section.address) for name, section in Settings().endpoints.sections()}


@contextmanager
def serve_lading(directory: Path, source: Path, more: Mapping[str, object]) -> Iterator[None]:
    """Lading at the usual ports of all protocols, with more settings."""
    settings = _usual_addresses() | {name: str(one).replace("SOURCE", str(source)) for name, one in more.items()}
    with testing.broker(directory / "data", settings=settings | {"broker.stall_timeout_ms": 60_000}):
        yield


@contextmanager
def serve_kafka(directory: Path, source: Path) -> Iterator[None]:
    """Apache Kafka at its usual port."""
    rows = kafka_broker.make_settings(directory, 9092, 9093, 9094) | {"num.partitions": "1"}
    kafka_broker.certificate(directory)
    kafka_broker.write_settings(directory, rows)
    child = kafka_broker.start(directory, heap="1g")
    try:
        kafka_broker.wait_until_ready(child, directory, 9092)
        yield
    finally:
        kafka_broker.stop(child)


@contextmanager
def serve_nsqd(directory: Path, source: Path) -> Iterator[None]:
    """Upstream's nsqd and nsqlookupd at their usual ports, with the certificates of go-nsq."""
    (directory / "data").mkdir()
    tls = [f"--tls-{name}={source}/test/{file}" for name, file in NSQ_CERTIFICATES.items()]
    commands = [
        [str(go_programs.server("nsqlookupd"))],
        [
            str(go_programs.server("nsqd")),
            f"--data-path={directory / 'data'}",
            "--lookupd-tcp-address=127.0.0.1:4160",
            *tls,
        ],
    ]
    children: list[subprocess.Popen[bytes]] = []
    try:
        for command, address in zip(commands, ("127.0.0.1:4161", "127.0.0.1:4150"), strict=True):
            with (directory / f"{len(children)}.log").open("wb") as log:
                children.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
            go_programs.wait_until_open(children[-1], address)
        yield
    finally:
        for child in reversed(children):
            child.terminate()
            child.wait(20)


NSQ_CERTIFICATES: Final = {"cert": "server.pem", "key": "server.key", "root-ca-file": "ca.pem"}
"""Options of nsqd, by the files that go-nsq and its fork have for them."""
OWN_NSQ_TLS: Final = {
    "endpoints.nsqd_tcp.tls.enabled": "true",
    "endpoints.nsqd_tcp.tls.required": "false",
    "endpoints.nsqd_tcp.tls.certificate": "SOURCE/test/server.pem",
    "endpoints.nsqd_tcp.tls.key": "SOURCE/test/server.key",
    "endpoints.nsqd_tcp.tls.client_ca": "SOURCE/test/ca.pem",
    "endpoints.nsqd_tcp.tls.client_certificates": "optional",
}
Serve = Callable[[Path, Path], AbstractContextManager[None]]


class Server(NamedTuple):
    """What a suite runs against: settings of ours, and the real one, None if none can be had."""

    settings: Mapping[str, object]
    serve_real: Serve | None


SERVERS: Final[Mapping[str, Server]] = {
    "kafka": Server({"endpoints.kafka.partitions": 1}, serve_kafka),
    "nsq": Server({**OWN_NSQ_TLS, "nsq.compat": "upstream"}, serve_nsqd),
    # the fork's server is in no registry
    "youzan": Server({**OWN_NSQ_TLS, "nsq.compat": "youzan"}, None),
}
