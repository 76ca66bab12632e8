"""A real Apache Kafka broker of one node, from its Maven jars: fetched once into the user's cache, run as a child."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.endpoints.authority import Authority
from tests.interop import maven
from tests.interop.maven import Unavailable as Unavailable

VERSION = "4.3.1"
READY_TIMEOUT_S = 180.0
USER, PASSWORD = "ann", "correct horse"
HEAP = "512m"
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
JARS = (f"org.apache.kafka:kafka_2.13:{VERSION}", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4")
LOGGING = """status=error
appender.f.type=Console
appender.f.name=F
appender.f.layout.type=PatternLayout
appender.f.layout.pattern=%d %p %c{1} %m%n
rootLogger.level=info
rootLogger.appenderRef.f.ref=F
"""


@dataclass(frozen=True, slots=True)
class RunningKafka:
    """A broker that answers at ``address``, Apache's at ``secure`` over TLS (``ca_file``) to USER with PASSWORD."""

    address: str
    pid: int
    secure: str = ""
    ca_file: Path = Path()

    @property
    def url(self) -> str:
        """As Lading's transports are told."""
        return f"kafka://{self.address}"


def jars() -> Path:
    """The directory of the broker's jars; Unavailable without Java 17, Maven or the artefacts."""
    java = shutil.which("java")
    if java is None:
        raise Unavailable("java is not installed")
    told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) < 17:
        raise Unavailable(f"Kafka {VERSION} needs Java 17 or newer")
    return maven.fetched(f"kafka-{VERSION}", JARS)


@contextmanager
def running(directory: Path) -> Iterator[RunningKafka]:
    """A broker on free ports with its data under ``directory``; it is ended with the block."""
    child, told = launched(directory)
    try:
        yield told
    finally:
        stop(child)


def launched(directory: Path) -> tuple[subprocess.Popen[bytes], RunningKafka]:
    """The same for who ends it by its process; Unavailable where it cannot be."""
    port, secure, controller = free_ports(3)
    directory.mkdir(parents=True, exist_ok=True)
    ca_file = certificate(directory)
    write_settings(directory, make_settings(directory, port, secure, controller))
    child = start(directory)
    try:
        wait_until_ready(child, directory, port)
    except BaseException:
        stop(child)
        raise
    return child, RunningKafka(f"127.0.0.1:{port}", child.pid, f"127.0.0.1:{secure}", ca_file)


def write_settings(directory: Path, rows: Mapping[str, str]) -> None:
    """Make ``directory`` that of a node: its settings, and its data directory formatted."""
    (directory / "server.properties").write_text("".join(f"{name}={value}\n" for name, value in rows.items()))
    (directory / "log4j2.properties").write_text(LOGGING)
    tool = [*_java(directory), "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c"]
    command = [*tool, str(directory / "server.properties")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    if done.returncode:
        raise Unavailable(f"Kafka cannot format its directory: {done.stderr.strip().splitlines()[-1:]}")


def start(directory: Path, heap: str = HEAP) -> subprocess.Popen[bytes]:
    """The node of a directory as a child."""
    # without nice: the pid is Java's
    java, *rest = _java(directory)[1:]
    memory = [f"-Xms{heap}", f"-Xmx{heap}", "-Djava.awt.headless=true"]
    command = [java, *memory, *rest, "kafka.Kafka", str(directory / "server.properties")]
    with (directory / "server.log").open("w") as out:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)


def stop(child: subprocess.Popen[bytes]) -> None:
    """End a node, at first politely."""
    child.terminate()
    try:
        child.wait(20)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _java(directory: Path) -> list[str]:
    log4j = f"-Dlog4j2.configurationFile={directory / 'log4j2.properties'}"
    return ["nice", "java", log4j, "-cp", f"{jars()}/*"]


def wait_until_ready(child: subprocess.Popen[bytes], directory: Path, port: int) -> None:
    """Until the node answers; Unavailable where it ends or takes too long."""
    log = directory / "server.log"
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            words = log.read_text().splitlines()
            causes = [line for line in words if "Exception" in line]
            raise Unavailable(f"Kafka ended while it started: {causes[-1:] or words[-3:]}")
        if "Kafka Server started" in log.read_text():
            with socket.create_connection(("127.0.0.1", port), 5):
                return
        time.sleep(0.1)
    raise Unavailable(f"Kafka was not ready after {READY_TIMEOUT_S:g} s")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports


def certificate(directory: Path) -> Path:
    """A certificate for 127.0.0.1, with its key in a file for the broker, and its authority in one for its clients."""
    authority = Authority(directory, "ca")
    authority.sign("broker")
    return authority.file


def secure_settings(certified: Path) -> dict[str, str]:
    """Of the listener SECURE: USER with PASSWORD over TLS, with the certificate that was made in ``certified``."""
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": login,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certified / "broker.pem"),
    }


def make_settings(directory: Path, port: int, secure: int, controller: int) -> dict[str, str]:
    small = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure}",
        **secure_settings(directory),
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
        "log.dirs": str(directory / "data"),
        "log.cleaner.backoff.ms": "200",
        # messages of long ago would go half a minute after the start; topics tell the usual retention
        "log.initial.task.delay.ms": "3600000",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        # 45 s without: a test that kills a member of a KIP-848 group waits for as long
        "group.consumer.min.session.timeout.ms": "10000",
        "group.consumer.session.timeout.ms": "10000",
        "transaction.state.log.min.isr": "1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "share.coordinator.state.topic.min.isr": "1",
        **{f"{name}.replication.factor": "1" for name in small},
        **{f"{name}.num.partitions": "1" for name in small},
    }
