"""The servers at the addresses that suites have written into them, ours and the real one, alone in their network."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from lading import testing
from lading.settings.settings import Settings
from tests.foreign.suites import NONE
from tests.interop import go_programs, kafka_broker

Serve = Callable[[Path, Path], AbstractContextManager[Mapping[str, str]]]
"""Serve with a directory of its own and the suite's, and give variables for the suite."""
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 1


def open_loopback() -> None:
    """Switch on the loopback of a new network, in which it is off (netdevice(7))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def _usual_addresses() -> dict[str, object]:
    return {f"endpoints.{name}.address": str(section.address) for name, section in Settings().endpoints.sections()}


def serve_lading(more: Mapping[str, object] = NONE, user: tuple[str, str] | None = None) -> Serve:
    """Lading at the usual ports of all protocols, with more settings, and an administrator ``user``."""

    @contextmanager
    def serve(directory: Path, source: Path) -> Iterator[Mapping[str, str]]:
        settings = _usual_addresses() | {name: str(one).replace("SOURCE", str(source)) for name, one in more.items()}
        if user is not None:
            _add_administrator(directory, *user)
        with testing.broker(directory / "data", settings=settings | {"broker.stall_timeout_ms": 60_000}):
            yield {}

    return serve


def serve_lading_with_rights(more: Mapping[str, object]) -> Serve:
    """Lading with users and rights; clients without a name may do all, as with Kafka's super user ANONYMOUS."""

    @contextmanager
    def serve(directory: Path, source: Path) -> Iterator[Mapping[str, str]]:
        settings = {
            **KAFKA_OF_FOUR, "broker.rebalance_delay_ms": 0, "endpoints.kafka.allow_unauthenticated": "true",
            "endpoints.admin.token": TOKEN, **more,
        }  # fmt: skip
        with serve_lading(settings, ("root", "root-secret"))(directory, source) as environment:
            for kind in ("topic", "group", "transaction", "user", "cluster"):
                pattern = [] if kind == "cluster" else ["*"]
                _run_lading("acl", "add", "ANONYMOUS", "all", *pattern, "--kind", kind, LADING_TOKEN=TOKEN)
            yield environment

    return serve


def _add_administrator(directory: Path, name: str, password: str) -> None:
    (directory / "password").write_text(password)
    _run_lading(
        "user",
        "add",
        name,
        "--admin",
        "--password-file",
        str(directory / "password"),
        "--data",
        str(directory / "data"),
    )


def _run_lading(*arguments: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lading", *arguments], env={**os.environ, **environment}, capture_output=True, text=True,
        timeout=120, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode:
        raise go_programs.Unavailable(f"lading {' '.join(arguments[:2])}: {done.stderr.strip()[-300:]}")


def serve_kafka(more: Mapping[str, str] = NONE) -> Serve:
    """Apache Kafka at its usual port, with more lines in its settings."""

    @contextmanager
    def serve(directory: Path, source: Path) -> Iterator[Mapping[str, str]]:
        rows = kafka_broker.make_settings(directory, 9092, 9093, 9094) | {"num.partitions": "1"} | dict(more)
        kafka_broker.certificate(directory)
        kafka_broker.write_settings(directory, rows)
        child = kafka_broker.start(directory, heap="1g")
        try:
            kafka_broker.wait_until_ready(child, directory, 9092)
            yield {}
        finally:
            kafka_broker.stop(child)

    return serve


@contextmanager
def serve_nsqd(directory: Path, source: Path) -> Iterator[Mapping[str, str]]:
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
        yield {}
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


@contextmanager
def put_lading_in_path(directory: Path, source: Path) -> Iterator[Mapping[str, str]]:
    """No server: suites start commands called nsqd and nsqlookupd, which start Lading (``nsqd_stand_in.py``)."""
    programs = directory / "bin"
    programs.mkdir()
    for name in ("nsqd", "nsqlookupd"):
        program = programs / name
        program.write_text(
            f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("nsqd_stand_in.py")} {name} "$@"\n'
        )
        program.chmod(0o755)
    root = Path(__file__).parents[2]
    yield _put_in_path(programs) | {"STAND_IN_LADING": sys.executable, "STAND_IN_PATH": str(root / "src")}


@contextmanager
def put_nsqd_in_path(directory: Path, source: Path) -> Iterator[Mapping[str, str]]:
    """No server: suites start upstream's nsqd and nsqlookupd."""
    go_programs.server("nsqlookupd")
    yield _put_in_path(go_programs.server("nsqd").parent)


def _put_in_path(directory: Path) -> dict[str, str]:
    return {"PATH": f"{directory}{os.pathsep}{os.environ['PATH']}"}


class Server(NamedTuple):
    """What a suite runs against: ours, and the real one, None if none can be had."""

    serve_ours: Serve
    serve_real: Serve | None


KAFKA_OF_FOUR: Final = {"endpoints.kafka.partitions": 4}
FOUR_PARTITIONS: Final = {"num.partitions": "4", "group.initial.rebalance.delay.ms": "0"}
RIGHTS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
}
SHORT_SESSIONS: Final = {"group.min.session.timeout.ms": "1000"}
BY_NAME: Final = {
    # make_settings has a second for tests of our own
    "group.min.session.timeout.ms": "6000",
    "advertised.listeners": "PLAINTEXT://localhost:9092,SECURE://127.0.0.1:9093",
}
TOKEN: Final = "token-of-a-suite"
SERVERS: Final[Mapping[str, Server]] = {
    "kafka": Server(serve_lading({"endpoints.kafka.partitions": 1}), serve_kafka()),
    "kafka-4": Server(serve_lading(KAFKA_OF_FOUR), serve_kafka(FOUR_PARTITIONS)),
    "kafka-rights": Server(
        serve_lading_with_rights({"broker.member_session_min_ms": 1000}),
        serve_kafka(FOUR_PARTITIONS | RIGHTS | SHORT_SESSIONS),
    ),
    # a suite that expects the name localhost, and Kafka's least session
    "kafka-by-name": Server(
        serve_lading_with_rights({"endpoints.kafka.advertised": "localhost:9092"}),
        serve_kafka(FOUR_PARTITIONS | RIGHTS | BY_NAME),
    ),
    "nsq": Server(serve_lading({**OWN_NSQ_TLS, "nsq.compat": "upstream"}), serve_nsqd),
    "nsqd-in-path": Server(put_lading_in_path, put_nsqd_in_path),
    # the fork's server is in no registry
    "youzan": Server(serve_lading({**OWN_NSQ_TLS, "nsq.compat": "youzan"}), None),
    # nor is a server of a release that these clients speak to
    "iggy": Server(serve_lading({"endpoints.iggy_http.release": "0.10"}, ("iggy", "iggy")), None),
}
