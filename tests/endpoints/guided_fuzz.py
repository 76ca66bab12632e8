"""Input that is guided by coverage on each listener: atheris (libFuzzer, from PyPI), which nobody here wrote.

``python -m tests.endpoints.guided_fuzz [LISTENER ...] --runs N --corpus DIR`` runs N inputs a listener and prints what
they came to; ``--again LISTENER FILE`` repeats one input that failed; ``--seeds`` meets what a corpus begins with,
once, without atheris. That is what ``test_listeners_fuzz`` says; a corpus grows by what reaches code that no input
before it has reached.

The broker runs in the process that libFuzzer drives, every module of it instrumented, with real sockets and the pure
Python twins of the kernels, whose branches can be seen. An input fails if an exception reaches the loop or a log with
its stack, or if it takes longer than SECONDS_MAX until the broker answers ``/live``.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import logging
import pkgutil
import re
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

RUNS: Final = 20_000
SECONDS_MAX: Final = 2.0
LIVE_EVERY: Final = 50
"""``/live`` is asked after so many inputs; an input that takes long is noticed by itself."""
LENGTH_MAX: Final = 4_096
ANSWER_S: Final = 0.05
TURNS: Final = 8
"""Passes of the loop in which a connection that stays open is served before it is dropped."""
INSTRUMENTED: Final = ("lading.broker", "lading.dialects", "lading.endpoints", "lading.filter", "lading.model")
_ENDED: Final = re.compile(r"Done (\d+) runs in (\d+) second")
_REACHED: Final = re.compile(r"cov: (\d+)")


class Leave(IntEnum):
    """When a client goes."""

    SOON = 0
    """After a few passes of the loop."""
    WHEN_ANSWERED = 1
    """It has said that it sends no more, and waits for the end, ANSWER_S at most."""
    AT_ONCE = 2
    """Before the broker reads what it said."""


class GuidedFaults(logging.Handler):
    """Keeps what must not happen: exceptions in the loop, and stacks in the log."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(logging.Formatter().format(record))

    def on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Note an exception that nobody has caught."""
        self.found.append(f"{context.get('message')}: {context.get('exception')!r}")


class GuidedBroker:
    """A broker in this process, whose loop runs while an input is met and at no other time."""

    def __init__(self, data: Path) -> None:
        from lading.serve.serve import serve
        from lading.settings.settings import Settings
        from tests.endpoints.test_listeners_fuzz import LISTENERS

        addresses = {name.split()[0]: {"address": "127.0.0.1:0"} for name in LISTENERS}
        shut = {name: {"enabled": False} for name in _endpoint_names() if name not in addresses}
        settings = Settings.model_validate({"data": data, "durability": "os", "endpoints": {**addresses, **shut}})
        self.faults = GuidedFaults()
        logging.getLogger().addHandler(self.faults)
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self.faults.on_loop_error)
        self._addresses: dict[str, tuple[str, int]] = {}
        self._serving = self._loop.create_task(serve(settings, output="json", announce=self._on_ready))
        while not self._addresses:
            self._loop.run_until_complete(asyncio.sleep(0.01))
            if self._serving.done():
                self._serving.result()

    def _on_ready(self, line: str) -> None:
        for name, address in json.loads(line)["endpoints"].items():
            host, _, port = address.rpartition(":")
            self._addresses[name] = (host, int(port))

    def meet(self, endpoint: str, parts: Sequence[bytes], leave: Leave) -> None:
        """Have a new client say this and go."""
        self._loop.run_until_complete(self._meet(endpoint, parts, leave))

    async def _meet(self, endpoint: str, parts: Sequence[bytes], leave: Leave) -> None:
        if endpoint == "iggy_quic":
            datagrams, _ = await self._loop.create_datagram_endpoint(
                asyncio.DatagramProtocol, remote_addr=self._addresses[endpoint]
            )
            for part in parts:
                datagrams.sendto(part)
            transport: asyncio.WriteTransport | asyncio.DatagramTransport = datagrams
        else:
            reader, writer = await asyncio.open_connection(*self._addresses[endpoint])
            transport = writer.transport
            with suppress(OSError):
                for part in parts:
                    writer.write(part)
                    if leave is not Leave.AT_ONCE:
                        await asyncio.sleep(0)
                if leave is Leave.WHEN_ANSWERED:
                    writer.write_eof()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(reader.read(), ANSWER_S)
        if leave is Leave.AT_ONCE:
            transport.abort()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        transport.abort()

    def require_live(self) -> None:
        """Ask the admin endpoint. Raises TimeoutError if it does not answer in time."""
        self._loop.run_until_complete(asyncio.wait_for(self._ask_live(), SECONDS_MAX))

    async def _ask_live(self) -> None:
        reader, writer = await asyncio.open_connection(*self._addresses["admin"])
        writer.write(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200"), answer
        writer.close()


def _endpoint_names() -> list[str]:
    from lading.settings.settings import EndpointSettings

    return list(EndpointSettings.model_fields)


def list_prefixes() -> Mapping[str, bytes]:
    """Return by listener what a client has said before the input: it is subscribed, registered, logged in, joined."""
    from tests.dialects.test_iggy_releases import captured
    from tests.endpoints import test_listeners_fuzz as said
    from tests.endpoints.frames import HEAD
    from tests.endpoints.nsq_client import sized
    from tests.endpoints.websocket_frames import HANDSHAKE

    def iggy(code: int, payload: bytes) -> bytes:
        return HEAD.pack(4 + len(payload), code) + payload

    member = iggy(said.JOIN, said.TOPIC + said.ONE)
    found = {
        "iggy_tcp": member,
        "iggy_websocket": f"{HANDSHAKE}\r\n".encode() + said.websocket_inputs([member])[0],
        "nsqd_tcp": b"  V2" + sized(b"IDENTIFY\n", b'{"extend_support":true}') + b"SUB fuzz ch\nRDY 5\n",
        "nsqlookupd_tcp": b"  V1" + sized(b"IDENTIFY\n", json.dumps(said.FACTS).encode()) + b"REGISTER fuzz 1\n",
    }
    for listener in said.LISTENERS:
        _, is_release, client = listener.partition(" of ")
        if is_release:
            login = captured(client)["login_user"][1]
            found[listener] = iggy(said.LOGIN, login) + iggy(said.JOIN, said.TOPIC + said.TOPIC[:6])
    return found


def prepare_world(broker: GuidedBroker) -> None:
    """Make what inputs name."""
    from tests.endpoints import test_listeners_fuzz as said
    from tests.endpoints.frames import HEAD
    from tests.endpoints.nsq_client import pub

    topic = said.TOPIC[:6] + struct.pack("<II", 1, 2) + b"topic"
    requests = [(said.STREAM_CREATE, said.ONE + b"stream"), (said.TOPIC_CREATE, topic)]
    requests.append((said.GROUP_CREATE, said.TOPIC + said.ONE))
    broker.meet("iggy_tcp", [HEAD.pack(4 + len(data), code) + data for code, data in requests], Leave.WHEN_ANSWERED)
    broker.meet("nsqd_tcp", [b"  V2" + pub("fuzz", b"x", b'{"a":1}') * 20], Leave.WHEN_ANSWERED)


def fuzz(listener: str, options: Sequence[str]) -> None:
    """Have libFuzzer drive inputs of one listener in this process; it ends the process."""
    import atheris

    with atheris.instrument_imports(include=list(INSTRUMENTED), enable_loader_override=False):
        import_instrumented()
    from lading.kernels import engine

    # the twins serve: as in a broker that is still loading, and for ever
    engine._background = threading.current_thread()
    logging.getLogger("lading").setLevel(logging.WARNING)
    logging.lastResort = None
    prefix = list_prefixes().get(listener, b"")
    with tempfile.TemporaryDirectory(prefix="lading-guided-") as directory:
        broker = GuidedBroker(Path(directory))
        prepare_world(broker)
        met = 0

        def test_one_input(data: bytes) -> None:
            nonlocal met
            met += 1
            began_s = time.monotonic()
            meet_input(broker, listener, prefix, data)
            if met % LIVE_EVERY == 0:
                broker.require_live()
            took_s = time.monotonic() - began_s
            if took_s > SECONDS_MAX:
                raise TimeoutError(f"{listener}: an input took {took_s:.1f} s")
            if broker.faults.found:
                raise AssertionError("\n".join(broker.faults.found))

        atheris.Setup(
            [sys.argv[0], f"-max_len={LENGTH_MAX}", "-timeout=30", "-rss_limit_mb=4096", *options], test_one_input
        )
        atheris.Fuzz()


def meet_input(broker: GuidedBroker, listener: str, prefix: bytes, data: bytes) -> None:
    """Have a client say an input, whose first byte tells where it is cut and when the client leaves."""
    how, data = (data[0], data[1:]) if data else (0, b"")
    cut = (how >> 2) * len(data) // 63
    broker.meet(listener.split()[0], [prefix + data[:cut], data[cut:]], Leave(how % len(Leave)))


def meet_seeds() -> list[str]:
    """Meet what the corpus begins with, each in every way to leave, without libFuzzer; return what must not happen."""
    from lading.kernels import engine
    from tests.endpoints.test_listeners_fuzz import LISTENERS

    engine._background = threading.current_thread()
    logging.getLogger("lading").setLevel(logging.WARNING)
    prefixes = list_prefixes()
    with tempfile.TemporaryDirectory(prefix="lading-guided-") as directory:
        broker = GuidedBroker(Path(directory))
        prepare_world(broker)
        for listener, (_, inputs) in LISTENERS.items():
            for data in inputs:
                for leave in Leave:
                    meet_input(broker, listener, prefixes.get(listener, b""), bytes([leave]) + data)
            broker.require_live()
        return broker.faults.found


def import_instrumented() -> None:
    """Import every module that inputs may reach, so that none is imported later as it is."""
    for name in INSTRUMENTED:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            # compiled elsewhere, from bytecode that nobody has changed
            if not module.name.endswith("kernels"):
                importlib.import_module(module.name)


def write_seeds(listener: str, corpus: Path) -> None:
    """Write what ``test_listeners_fuzz`` begins with."""
    from tests.endpoints.test_listeners_fuzz import LISTENERS

    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(LISTENERS[listener][1]):
        (corpus / f"seed-{number}").write_bytes(bytes([number % 256]) + data)


def run_listener(listener: str, runs: int, corpus: Path) -> dict[str, Any]:
    """Run inputs in processes of RUNS each, as topics that inputs have made stay; return what they came to."""
    write_seeds(listener, corpus)
    done = reached = 0
    began_s = time.monotonic()
    while done < runs:
        part = min(RUNS, runs - done)
        command = [
            sys.executable,
            "-m",
            "tests.endpoints.guided_fuzz",
            "--drive",
            listener,
            f"-runs={part}",
            str(corpus),
        ]
        ended = subprocess.run(
            [*command, f"-artifact_prefix={corpus.parent}/"], capture_output=True, text=True, check=False
        )
        if ended.returncode or (counted := _ENDED.search(ended.stderr)) is None:
            raise AssertionError(f"{listener}: {ended.stdout[-3_000:]}\n{ended.stderr[-3_000:]}")
        done += int(counted[1])
        reached = max(reached, *map(int, _REACHED.findall(ended.stderr)))
    return {
        "listener": listener, "inputs": done, "reached": reached, "kept": len(list(corpus.iterdir())),
        "seconds": round(time.monotonic() - began_s),
    }  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] == ["--drive"]:
        fuzz(arguments[1], arguments[2:])
        return
    if arguments[:1] == ["--seeds"]:
        if faults := meet_seeds():
            raise SystemExit("\n".join(faults))
        return
    if arguments[:1] == ["--again"]:
        fuzz(arguments[1], [arguments[2]])
        return
    from tests.endpoints.test_listeners_fuzz import LISTENERS

    parser = argparse.ArgumentParser(prog="python -m tests.endpoints.guided_fuzz", description=__doc__)
    parser.add_argument("listeners", nargs="*", metavar="LISTENER", help="all unless given")
    parser.add_argument("--runs", type=int, default=RUNS, help="inputs a listener")
    parser.add_argument("--corpus", type=Path, required=True, help="a directory for inputs that are worth keeping")
    options = parser.parse_args(arguments)
    for listener in options.listeners or LISTENERS:
        found = run_listener(listener, options.runs, options.corpus / listener.replace(" ", "-"))
        sys.stdout.write(f"{found}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
