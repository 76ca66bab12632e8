"""Lading under the names nsqd and nsqlookupd, for suites that start these commands with upstream's options.

    python nsqd_stand_in.py nsqd --tcp-address 127.0.0.1:0 …

This process becomes the broker. Its child prints what suites wait for, as nsqd's log does, and registers topics and
channels at the nsqlookupd that ``--lookupd-tcp-address`` names, as nsqd does: brokers of ours register nowhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import struct
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

Address = tuple[str, int]
ENDPOINTS: Final = {"nsqd": ("nsqd_tcp", "nsqd_http"), "nsqlookupd": ("nsqlookupd_tcp", "nsqlookupd_http")}
PORTS: Final = {"nsqd": (4150, 4151), "nsqlookupd": (4160, 4161)}
OTHERS: Final = ("iggy_tcp", "iggy_quic", "iggy_websocket", "iggy_http", "kafka", "schema_registry")
WITHOUT_VALUE: Final = ("verbose", "snappy", "deflate", "version", "tls-required")
READY_S: Final = 60
PING_S: Final = 15
PR_SET_PDEATHSIG: Final = 1


def main(name: str, arguments: list[str]) -> None:
    """Become a broker that serves as nsqd or nsqlookupd does with these arguments."""
    options = parse_options(arguments)
    if "version" in options:
        print(f"{name} v1.3.0 (built w/go1.21.0)")
        return
    addresses = [
        choose_address(options.get(option, f"127.0.0.1:{port}"))
        for option, port in zip(("tcp-address", "http-address"), PORTS[name], strict=True)
    ]
    command = make_command(name, options, addresses)
    parent = os.getpid()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            announce(name, options, addresses)
        os._exit(0)
    # suites read standard error until its end, and look for nsqd's words in it
    log = os.open(Path(tempfile.gettempdir(), f"lading-as-{name}-{parent}.log"), os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(log, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.environ["PYTHONPATH"] = os.environ["STAND_IN_PATH"]
    os.execv(command[0], command)


def parse_options(arguments: list[str]) -> dict[str, str]:
    """Return Go's options, with one dash or two, and the value after ``=`` or next to it."""
    options = {}
    rest = iter(arguments)
    for argument in rest:
        option, equals, value = argument.lstrip("-").partition("=")
        options[option] = value if equals else "true" if option in WITHOUT_VALUE else next(rest, "")
    return options


def choose_address(text: str) -> Address:
    """Return host and port of an option, with a free port for 0."""
    host, _, port = text.rpartition(":")
    host = "127.0.0.1" if host in ("", "0.0.0.0", "localhost") else host
    if port != "0":
        return host, int(port)
    with socket.create_server((host, 0)) as free:
        return host, free.getsockname()[1]


def make_command(name: str, options: Mapping[str, str], addresses: list[Address]) -> list[str]:
    """Return the command that serves as the options ask."""
    settings = {f"endpoints.{other}.enabled": "false" for other in OTHERS}
    for kind, endpoints in ENDPOINTS.items():
        settings |= {f"endpoints.{endpoint}.enabled": "false" for endpoint in endpoints if kind != name}
    # the suites are for upstream's servers, of which the fork's lookup shows one for each partition
    settings |= {"endpoints.admin.address": "127.0.0.1:0", "nsq.compat": "upstream"}
    for endpoint, (host, port) in zip(ENDPOINTS[name], addresses, strict=True):
        settings[f"endpoints.{endpoint}.address"] = f"{host}:{port}"
    if "tls-cert" in options:
        section = f"endpoints.{ENDPOINTS[name][0]}.tls"
        settings |= {
            f"{section}.enabled": "true", f"{section}.required": options.get("tls-required", "false"),
            f"{section}.certificate": options["tls-cert"], f"{section}.key": options["tls-key"],
        }  # fmt: skip
    data = Path(options.get("data-path") or tempfile.mkdtemp(prefix="lading-as-nsq-"), "lading")
    command = [os.environ["STAND_IN_LADING"], "-m", "lading", "serve", "--data", str(data)]
    return command + [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]


def announce(name: str, options: Mapping[str, str], addresses: list[Address]) -> None:
    """Print nsqd's lines once the broker listens, then keep its lookup informed."""
    deadline_s = time.monotonic() + READY_S
    waiting = list(addresses)
    while waiting and time.monotonic() < deadline_s:
        try:
            socket.create_connection(waiting[0], 1).close()
            waiting.pop(0)
        except OSError:
            time.sleep(0.05)
    lines = [("TCP", addresses[0]), ("HTTP", addresses[1]), *([("HTTPS", addresses[1])] if name == "nsqd" else [])]
    for protocol, (host, port) in lines:
        print(f"[{name}] INFO: {protocol}: listening on {host}:{port}", file=sys.stderr, flush=True)
    lookup = options.get("lookupd-tcp-address")
    for descriptor in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    while lookup is not None:
        with contextlib.suppress(OSError):
            register(choose_address(lookup), addresses)
        time.sleep(0.1)


def register(lookup: Address, addresses: list[Address]) -> None:
    """Tell nsqlookupd which topics and channels there are, until the connection ends."""
    with socket.create_connection(lookup, 5) as connection:
        connection.sendall(b"  V1")

        def send(line: str, body: bytes | None = None) -> None:
            sized = b"" if body is None else struct.pack(">i", len(body)) + body
            connection.sendall(line.encode() + b"\n" + sized)
            (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
            connection.recv(size, socket.MSG_WAITALL)

        node = {
            "broadcast_address": "127.0.0.1", "hostname": "localhost", "tcp_port": addresses[0][1],
            "http_port": addresses[1][1], "version": "1.3.0",
        }  # fmt: skip
        send("IDENTIFY", json.dumps(node).encode())
        known: set[str] = set()
        pinged_s = time.monotonic()
        while True:
            # as often as nsqd: a node that is silent for five minutes is listed no more
            if time.monotonic() - pinged_s > PING_S:
                send("PING")
                pinged_s = time.monotonic()
            found = list_registrations(addresses[1])
            for line in sorted(found - known):
                send(f"REGISTER {line}")
            for line in sorted(known - found, reverse=True):
                send(f"UNREGISTER {line}")
            known = found
            time.sleep(0.05)


def list_registrations(http: Address) -> set[str]:
    """Return topics, and topics with channels, as the parameters of REGISTER."""
    with urllib.request.urlopen(f"http://{http[0]}:{http[1]}/stats?format=json", timeout=5) as response:
        topics = json.load(response)["topics"]
    return {topic["topic_name"] for topic in topics} | {
        f"{topic['topic_name']} {channel['channel_name']}" for topic in topics for channel in topic["channels"]
    }


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
