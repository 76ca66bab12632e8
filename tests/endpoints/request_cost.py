"""What a request costs: CPU time, the longest pass of the event loop, and the most memory, measured without sockets.

A ``World`` is a broker in this process, with users, whose loop is turned by hand. Work for workers is done within the
loop's thread, and is counted apart. CPU time is that of the thread: what else the machine does hardly changes it.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from pkgutil import resolve_name
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

from lading.broker.broker import Broker
from lading.broker.core.settings import BrokerSettings
from lading.dialects.protocols import ENDPOINTS
from lading.endpoints.base.receive_budget import ReceiveAccount
from lading.endpoints.base.services import Services
from lading.endpoints.http_shared.http import HttpEndpoint
from lading.endpoints.io.quic import QuicEndpoint
from lading.log.group_commit import WriteOnly
from lading.runtime.metrics import Metrics
from lading.settings.settings import Settings
from tests.endpoints.every_request import SECRET
from tests.endpoints.identity import add_users
from tests.endpoints.process_growth import begin_growth
from tests.endpoints.scripted_quic import ScriptedQuicConnection, open_listener
from tests.house.scripted import ScriptedConnection, ScriptedHttpConnection, ScriptedLoop, unbound_listener

Client = ScriptedConnection | ScriptedHttpConnection | ScriptedQuicConnection

PIECE_BYTES = 256 << 10
"""A socket gives at most about so much at a time."""
PROBE_EVERY_S = 0.001
"""Between two looks at how fast the machine is at present; a look takes a twentieth of it."""
PROBE_ROUNDS = 600
LONG_PASS_S = 0.005
"""The speed of the machine is looked at right after a pass that is longer."""
WARM_PROBES = 20
PASSES_MAX = 2_000_000
"""A request that has not ended after so many passes of the loop never will."""


class Cost(NamedTuple):
    """What one request took."""

    cpu_s: float
    """Of the loop and the workers, at the speed that this machine has when it is quiet."""
    longest_pass_s: float
    """CPU time of the longest pass of the loop, at that speed, the work of workers left out."""
    peak_bytes: int = 0
    """Most memory that Python's objects took at a time, beyond what there was before; 0 if it was not measured."""
    held_bytes: int = 0
    """Most of the memory for requests that arrive (``ReceiveBudget``) that was taken at a time."""
    grown_bytes: int | None = None
    """How far the process grew at most: no less than ``peak_bytes``. None if it was not measured, or cannot be."""


class SpeedProbe:
    """How fast the machine is while something runs: neighbours on a busy one make the same work take twice as long."""

    def __init__(self) -> None:
        self._quiet_s = _measure_quiet_probe()
        self.begin()

    def begin(self) -> None:
        """Begin with a new piece of work."""
        self._taken_s = _run_probe()
        self._count = 1
        self._warm_s = 0.0
        self._due_s = time.thread_time() + PROBE_EVERY_S

    @property
    def probes_s(self) -> float:
        """The CPU time that the probe itself has taken since the beginning."""
        return self._taken_s + self._warm_s

    def measure_slowness_now(self) -> float:
        """Return how many times as long as on the quiet machine work takes at present.

        Looks between short passes find the caches full of other things, as those of a long pass are not: by them a pass
        of 30 ms lasted 19.
        """
        # the first one warms the caches
        taken_s = [_run_probe() for _ in range(WARM_PROBES)]
        self._warm_s += sum(taken_s)
        return max(median(taken_s[1:]) / self._quiet_s, 1.0)

    @property
    def slowness(self) -> float:
        """How many times as long as on the quiet machine work has taken since the beginning."""
        return self._taken_s / self._count / self._quiet_s

    def look(self, now_s: float) -> float:
        """Look between two passes if it is time for it. Return the thread's CPU time afterwards."""
        if now_s < self._due_s:
            return now_s
        self._taken_s += _run_probe()
        self._count += 1
        now_s = time.thread_time()
        self._due_s = now_s + PROBE_EVERY_S
        return now_s


def _run_probe() -> float:
    """Return the CPU time of what endpoints do most: look names up, create small objects."""
    objects: dict[int, tuple[int, str]] = {}
    began_s = time.thread_time()
    for number in range(PROBE_ROUNDS):
        objects[number & 63] = (number, str(number))
    return time.thread_time() - began_s


@cache
def _measure_quiet_probe() -> float:
    return min(_run_probe() for _ in range(500))


class MeasuredLoop(ScriptedLoop):
    """A loop that measures each of its passes."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_pass_s = self.longest_quiet_s = self.workers_s = self.clients_s = 0.0
        self.probe = SpeedProbe()

    def turn(self) -> None:
        ready, look, began_s = self._ready, self.probe.look, time.thread_time()
        for _ in range(PASSES_MAX):
            if not ready:
                return
            workers_s = self.workers_s
            for _ in range(len(ready)):
                callback, arguments = ready.popleft()
                callback(*arguments)
            # one look at the clock for each pass: a short request has three passes
            ended_s = time.thread_time()
            taken_s = ended_s - began_s - (self.workers_s - workers_s)
            if taken_s > self.longest_pass_s:
                self.longest_pass_s = taken_s
            if taken_s > LONG_PASS_S:
                ended_s = self._note_long_pass(taken_s)
            began_s = look(ended_s)
        raise AssertionError("the loop does not come to rest")

    def _note_long_pass(self, taken_s: float) -> float:
        """Note how long a pass that has just ended lasts on the quiet machine. Return the thread's CPU time now."""
        self.longest_quiet_s = max(self.longest_quiet_s, taken_s / self.probe.measure_slowness_now())
        return time.thread_time()

    @contextmanager
    def measure_pass(self) -> Iterator[None]:
        """Count what is done within as one pass."""
        workers_s, began_s = self.workers_s, time.thread_time()
        yield
        ended_s = time.thread_time()
        taken_s = ended_s - began_s - (self.workers_s - workers_s)
        self.longest_pass_s = max(self.longest_pass_s, taken_s)
        if taken_s > LONG_PASS_S:
            ended_s = self._note_long_pass(taken_s)
        self.probe.look(ended_s)

    @contextmanager
    def as_client(self) -> Iterator[None]:
        """Count what is done within, outside of all passes, as the client's."""
        began_s = time.thread_time()
        yield
        self.clients_s += time.thread_time() - began_s

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
        self._least_left_bytes = services.receive.left_bytes
        self._grant, services.receive.grant = services.receive.grant, self._note_grant  # type: ignore[method-assign]

    def _note_grant(self, account: ReceiveAccount, size_bytes: int) -> bool:
        is_granted = self._grant(account, size_bytes)
        self._least_left_bytes = min(self._least_left_bytes, self.services.receive.left_bytes)
        return is_granted

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
        if isinstance(server, QuicEndpoint):
            place = open_listener(self.loop, server.start)
            return partial(ScriptedQuicConnection, self.loop, place, self.loop.as_client, self.loop.measure_pass)
        with unbound_listener() as listener:
            self.loop.finish(server.start(listener))
        factory = self.loop.factory
        assert factory is not None
        return lambda: ScriptedConnection(self.loop, factory())

    def send(self, client: Client, data: bytes, pieces: Sequence[bytes] | None = None) -> None:
        """Let ``data`` arrive in pieces, each in a pass of its own: asyncio reads a socket once in a pass.

        What an endpoint that has paused reading gets arrives when it reads on; what follows its close is lost.
        ``pieces`` is what ``cut_pieces`` returns, so that no copy of the test's is measured.
        """
        if isinstance(client, ScriptedQuicConnection):
            client.send(data)
            return
        pieces = pieces or cut_pieces(data)
        view, at = memoryview(data), 0
        while at < len(data) and not client.transport.is_closing():
            if client.transport.is_paused():
                self.loop.turn()
                if client.transport.is_paused():
                    return
            size_bytes = PIECE_BYTES
            if isinstance(client, ScriptedConnection):
                size_bytes = min(len(cast("memoryview", client.protocol.get_buffer(-1))), PIECE_BYTES)
                assert size_bytes, "a connection that reads has room"
                piece: bytes | memoryview = view[at : at + size_bytes]
            else:
                piece = pieces[at // PIECE_BYTES]
            with self.loop.measure_pass():
                client.arrive(piece)
            at += size_bytes

    def measure(self, work: Callable[[], None], *, has_memory: bool = False, has_growth: bool = False) -> Cost:
        """Return what ``work`` costs, with all that the loop does for it."""
        loop = self.loop
        loop.turn()
        loop.longest_pass_s = loop.longest_quiet_s = loop.workers_s = loop.clients_s = 0.0
        left_bytes = self._least_left_bytes = self.services.receive.left_bytes
        gc.collect()
        gc.disable()
        growth = begin_growth() if has_growth else None
        if has_memory:
            tracemalloc.start()
        probe = loop.probe
        probe.begin()
        began_s = time.thread_time()
        before_s = probe.probes_s
        try:
            work()
            loop.turn()
            taken_s = time.thread_time() - began_s - (probe.probes_s - before_s) - loop.clients_s
            cpu_s = taken_s / probe.slowness
            longest_pass_s = max(loop.longest_pass_s / probe.slowness, loop.longest_quiet_s)
            peak_bytes = tracemalloc.get_traced_memory()[1] if has_memory else 0
            grown_bytes = growth.read_bytes() if growth else None
        finally:
            tracemalloc.stop()
            gc.enable()
        return Cost(cpu_s, longest_pass_s, peak_bytes, left_bytes - self._least_left_bytes, grown_bytes)


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
def opened_world(
    directory: Path, *, has_users: bool = True, settings: Settings | None = None, **broker_settings: Any
) -> Iterator[World]:
    """A broker in a new directory; ``root`` is an administrator, ``ann`` and ``bob`` have no rights."""
    tokens = _add_known_users(directory) if has_users else {}
    settings = settings or Settings(data=directory, busy_poll_us=0)
    broker = Broker.open(directory, BrokerSettings(durability="os", **broker_settings), now_us=1, commit=WriteOnly())
    loop = MeasuredLoop()
    with loop, ThreadPoolExecutor(1) as workers:
        broker.appender.on_pending = lambda: loop.call_soon(broker.appender.flush)
        for queue in (broker.topology.wakeups, broker.appender.completions):
            queue.call_soon = loop.call_soon
        try:
            yield World(broker, Services(broker, settings, Metrics(), workers), loop, tokens)
        finally:
            broker.stop()


def cut_pieces(data: bytes) -> list[bytes]:
    """Return what a socket gives at a time of data that has arrived."""
    return [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]


def best(costs: list[Cost]) -> Cost:
    """Return the least of each time: what a busy machine added is left out. Memory is as in the first."""
    return costs[0]._replace(
        cpu_s=min(cost.cpu_s for cost in costs), longest_pass_s=min(cost.longest_pass_s for cost in costs)
    )


@contextmanager
def traced_lines() -> Iterator[None]:
    """Have Python remember the lines of all functions that are called within.

    ``tracemalloc`` looks for the line of each object that is created: from the first line of its function, unless a
    tracer of lines had them listed. Without the list it takes up to twenty times as long as the request.
    """

    def trace(*event: object) -> Any:
        return trace

    tracer = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(tracer)
