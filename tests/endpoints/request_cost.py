"""What a request costs: CPU time, the longest pass of the event loop, and the most memory, measured without sockets.

A ``World`` is a broker in this process, with users, whose loop is turned by hand. Work for workers is done within the
loop's thread, and is counted apart. CPU time is that of the thread: what else the machine does hardly changes it.
"""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

from lading.broker.broker import Broker
from lading.broker.core.settings import BrokerSettings
from lading.dialects.protocols import ENDPOINTS
from lading.endpoints.base.services import Services
from lading.endpoints.http_shared.http import HttpEndpoint
from lading.log.group_commit import WriteOnly
from lading.runtime.metrics import Metrics
from lading.settings.settings import Settings
from tests.endpoints.every_request import SECRET
from tests.endpoints.identity import add_users
from tests.house.scripted import ScriptedConnection, ScriptedHttpConnection, ScriptedLoop, unbound_listener

Client = ScriptedConnection | ScriptedHttpConnection

PIECE_BYTES = 256 << 10
"""A socket gives at most about so much at a time."""
PASSES_MAX = 2_000_000
"""A request that has not ended after so many passes of the loop never will."""


class Cost(NamedTuple):
    """What one request took."""

    cpu_s: float
    """Of the loop and the workers."""
    longest_pass_s: float
    """CPU time of the longest pass of the loop, the work of workers left out."""
    peak_bytes: int = 0
    """Most memory that Python's objects took at a time, beyond what there was before; 0 if it was not measured."""


class MeasuredLoop(ScriptedLoop):
    """A loop that measures each of its passes."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_pass_s = self.workers_s = 0.0

    def turn(self) -> None:
        for _ in range(PASSES_MAX):
            if not self._ready:
                return
            with self.measure_pass():
                for _ in range(len(self._ready)):
                    callback, arguments = self._ready.popleft()
                    callback(*arguments)
        raise AssertionError("the loop does not come to rest")

    @contextmanager
    def measure_pass(self) -> Iterator[None]:
        """Count what is done within as one pass."""
        workers_s, began_s = self.workers_s, time.thread_time()
        yield
        taken_s = time.thread_time() - began_s - (self.workers_s - workers_s)
        self.longest_pass_s = max(self.longest_pass_s, taken_s)

    def run_in_executor(self, executor: Any, func: Any, *arguments: Any) -> Any:
        began_s = time.thread_time()
        done: asyncio.Future[Any] = super().run_in_executor(executor, func, *arguments)
        self.workers_s += time.thread_time() - began_s
        return done


class World:
    """A broker with users, and the endpoints that are asked for."""

    def __init__(self, broker: Broker, services: Services, loop: MeasuredLoop, tokens: dict[str, str]) -> None:
        self.broker, self.services, self.loop, self.tokens = broker, services, loop, tokens
        self._factories: dict[str, Callable[[], Client]] = {}

    def create_topic(self, name: str = SECRET) -> None:
        """Create a topic with one partition, which requests name."""
        stream = self.broker.topology.ensure_stream("default", now_us=1)
        self.broker.at_once.create_topic(stream.id, None, name, 1, now_us=1)

    def connect(self, endpoint: str) -> Client:
        """Return a new client of an endpoint."""
        if endpoint not in self._factories:
            self._factories[endpoint] = self._start(endpoint)
        return self._factories[endpoint]()

    def _start(self, endpoint: str) -> Callable[[], Client]:
        server = resolve_name(ENDPOINTS[endpoint].factory)(self.services, endpoint)
        if isinstance(server, HttpEndpoint):
            # uvicorn would listen
            server._server.config.load()
            return partial(ScriptedHttpConnection, self.loop, server._server)
        with unbound_listener() as listener:
            self.loop.finish(server.start(listener))
        factory = self.loop.factory
        assert factory is not None
        return lambda: ScriptedConnection(self.loop, factory())

    def send(self, client: Client, data: bytes) -> None:
        """Let ``data`` arrive in pieces, each in a pass of its own: asyncio reads a socket once in a pass.

        What an endpoint that has paused reading gets arrives when it reads on; what follows its close is lost.
        """
        at = 0
        while at < len(data) and not client.transport.is_closing():
            if client.transport.is_paused():
                self.loop.turn()
                if client.transport.is_paused():
                    return
            size_bytes = PIECE_BYTES
            if isinstance(client, ScriptedConnection):
                size_bytes = min(len(cast("memoryview", client.protocol.get_buffer(-1))), PIECE_BYTES)
                assert size_bytes, "a connection that reads has room"
            with self.loop.measure_pass():
                client.arrive(data[at : at + size_bytes])
            at += size_bytes

    def measure(self, work: Callable[[], None], *, has_memory: bool = False) -> Cost:
        """Return what ``work`` costs, with all that the loop does for it."""
        loop = self.loop
        loop.turn()
        loop.longest_pass_s = loop.workers_s = 0.0
        gc.collect()
        gc.disable()
        if has_memory:
            tracemalloc.start()
        began_s = time.thread_time()
        try:
            work()
            loop.turn()
            cpu_s = time.thread_time() - began_s
            peak_bytes = tracemalloc.get_traced_memory()[1] if has_memory else 0
        finally:
            tracemalloc.stop()
            gc.enable()
        return Cost(cpu_s, loop.longest_pass_s, peak_bytes)


@cache
def _files_with_users() -> tuple[Mapping[Path, bytes], dict[str, str]]:
    """Return the files of a data directory with users, by path, and the users' tokens."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        tokens = add_users(directory)
        files = {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    return files, tokens


def _add_known_users(directory: Path) -> dict[str, str]:
    """Do as ``add_users`` does, with the files that it made for another world: hashes take a fifth of a second."""
    files, tokens = _files_with_users()
    for path, data in files.items():
        place = directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        place.chmod(0o600)
    return tokens


@contextmanager
def opened_world(directory: Path, *, has_users: bool = True, settings: Settings | None = None) -> Iterator[World]:
    """A broker in a new directory; ``root`` is an administrator, ``ann`` and ``bob`` have no rights."""
    tokens = _add_known_users(directory) if has_users else {}
    settings = settings or Settings(data=directory, busy_poll_us=0)
    broker = Broker.open(directory, BrokerSettings(durability="os"), now_us=1, commit=WriteOnly())
    loop = MeasuredLoop()
    with loop, ThreadPoolExecutor(1) as workers:
        broker.appender.on_pending = lambda: loop.call_soon(broker.appender.flush)
        broker.topology.wakeups.call_soon = loop.call_soon
        try:
            yield World(broker, Services(broker, settings, Metrics(), workers), loop, tokens)
        finally:
            broker.stop()


def best(costs: list[Cost]) -> Cost:
    """Return the least of each figure: what a busy machine added is left out."""
    return Cost(
        min(cost.cpu_s for cost in costs),
        min(cost.longest_pass_s for cost in costs),
        min(cost.peak_bytes for cost in costs),
    )
