"""Endpoints without sockets, threads and waiting: a loop that is turned by hand and a transport that records.

What is due later stays due: a test that is interested turns the clock itself.
"""

from __future__ import annotations

import asyncio
import heapq
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, cast

import uvicorn

PEER = ("127.0.0.1", 50_000)


class ScriptedServer:
    """What ``create_server`` gives."""

    def close(self) -> None:
        """Nothing listens."""


class ScriptedTransport:
    """A connection's other half: keeps what is written, and what was asked of it."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.is_forgetting = False
        """Whether what is written is dropped, as by a client that reads at once."""
        self.events: list[str] = []
        # endpoints ask for both again and again: a search of all events would count as their work
        self._is_closing = self._is_paused = False

    def take(self) -> bytes:
        """Return what was written since the last call."""
        data = bytes(self.written)
        self.written.clear()
        return data

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.is_forgetting:
            self.written += data

    def writelines(self, parts: Any) -> None:
        if not self.is_forgetting:
            self.written += b"".join(parts)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return PEER if name in ("peername", "sockname") else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Everything is taken at once."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._is_closing

    def is_paused(self) -> bool:
        """Whether the endpoint takes nothing that arrives at present."""
        return self._is_paused

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.events.append("write_eof")

    def pause_reading(self) -> None:
        self._is_paused = True
        self.events.append("pause_reading")

    def resume_reading(self) -> None:
        self._is_paused = False
        self.events.append("resume_reading")

    def close(self) -> None:
        self._is_closing = True
        self.events.append("close")

    def abort(self) -> None:
        self._is_closing = True
        self.events.append("abort")


class ScriptedLoop:
    """An event loop that runs what is due when ``turn`` is called, and in this thread what is for workers.

    It has of ``asyncio.AbstractEventLoop`` what endpoints and futures ask for, and nothing that would wait.
    """

    def __init__(self) -> None:
        self._ready: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._now_s = 0.0
        self._later: list[asyncio.TimerHandle] = []
        self.factory: Callable[[], asyncio.BufferedProtocol] | None = None
        self.readers: dict[int, Callable[[], object]] = {}
        """What is called when a socket has something to read, by the socket's number."""

    def __enter__(self) -> ScriptedLoop:
        asyncio._set_running_loop(self._as_loop)
        return self

    def __exit__(self, *error: object) -> None:
        # as asyncio.run does: a task that still waits is reported as an error when it is collected
        for task in asyncio.all_tasks(self._as_loop):
            task.cancel()
        self.turn()
        asyncio._set_running_loop(None)

    @property
    def _as_loop(self) -> asyncio.AbstractEventLoop:
        return cast("asyncio.AbstractEventLoop", self)

    def turn(self) -> None:
        """Run what was handed to ``call_soon``, and what that hands to it."""
        while self._ready:
            callback, arguments = self._ready.popleft()
            callback(*arguments)

    def end_timers(self, seconds: float) -> None:
        """Let time pass, and end the timers that are due by then; the caller runs what they hand to ``call_soon``."""
        self._now_s += seconds
        while self._later and self._later[0].when() <= self._now_s:
            timer = heapq.heappop(self._later)
            if not timer.cancelled():
                timer._run()

    def advance(self, seconds: float) -> None:
        """Let time pass, and run what is due meanwhile."""
        until_s = self._now_s + seconds
        while self._later and self._later[0].when() <= until_s:
            timer = heapq.heappop(self._later)
            self._now_s = max(self._now_s, timer.when())
            if not timer.cancelled():
                timer._run()
                self.turn()
        self._now_s = until_s

    def finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that never has to wait."""
        try:
            work.send(None)
        except StopIteration:
            return
        work.close()
        raise AssertionError("it waits for something")

    def connect(self) -> ScriptedConnection:
        """Let a client connect to the endpoint that was started last."""
        assert self.factory is not None
        return ScriptedConnection(self, self.factory())

    # -- what endpoints and asyncio's futures ask of a loop

    async def create_server(self, protocol_factory: Any, *arguments: Any, **named: Any) -> Any:
        self.factory = protocol_factory
        return ScriptedServer()

    def add_reader(self, place: int, callback: Callable[[], object]) -> None:
        self.readers[place] = callback

    def remove_reader(self, place: int) -> None:
        self.readers.pop(place, None)

    def remove_writer(self, place: int) -> None:
        """Everything is written at once."""

    def call_soon(self, callback: Any, *arguments: Any, context: Context | None = None) -> Any:
        self._ready.append((callback, arguments))

    def call_later(self, delay: float, callback: Any, *arguments: Any, context: Context | None = None) -> Any:
        return self.call_at(self._now_s + delay, callback, *arguments)

    def call_at(self, when: float, callback: Any, *arguments: Any, context: Context | None = None) -> Any:
        timer = asyncio.TimerHandle(when, callback, arguments, self._as_loop)
        heapq.heappush(self._later, timer)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing is kept of it."""

    def run_in_executor(self, executor: Any, func: Any, *arguments: Any) -> Any:
        done: asyncio.Future[Any] = self.create_future()
        try:
            done.set_result(func(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done

    def create_task(self, work: Coroutine[Any, Any, Any], **named: Any) -> asyncio.Task[Any]:
        return asyncio.Task(work, loop=self._as_loop, **named)

    def call_soon_threadsafe(self, callback: Any, *arguments: Any, context: Context | None = None) -> Any:
        self.call_soon(callback, *arguments)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        raise AssertionError(context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._as_loop)

    def time(self) -> float:
        return self._now_s

    def get_debug(self) -> bool:
        return False


class ScriptedConnection:
    """A client whose bytes arrive when the test says so."""

    def __init__(self, loop: ScriptedLoop, protocol: asyncio.BufferedProtocol) -> None:
        self.loop, self.protocol = loop, protocol
        self.transport = ScriptedTransport()
        protocol.connection_made(cast("asyncio.BaseTransport", self.transport))

    def send(self, data: bytes) -> None:
        """Let ``data`` arrive, and turn the loop."""
        self.arrive(data)
        self.loop.turn()

    def arrive(self, data: bytes | memoryview) -> None:
        """Let ``data`` arrive, in as many reads as the buffer of the connection asks for."""
        at, protocol = 0, self.protocol
        while at < len(data):
            if self.transport.is_paused():
                # a transport brings nothing until reading is resumed
                self.loop.turn()
            room = cast("memoryview", protocol.get_buffer(-1))
            size = min(len(room), len(data) - at)
            room[:size] = data[at : at + size]
            protocol.buffer_updated(size)
            at += size

    def ask(self, data: bytes) -> bytes:
        """Let ``data`` arrive and return what is answered."""
        self.send(data)
        return self.transport.take()

    def close(self) -> None:
        """The client is gone."""
        protocol = self.__dict__.pop("protocol", None)
        if protocol is not None:
            protocol.connection_lost(None)


class ScriptedHttpConnection:
    """A client of an HTTP endpoint, whose server has been started with this loop."""

    def __init__(self, loop: ScriptedLoop, server: uvicorn.Server) -> None:
        self.loop = loop
        self.transport = ScriptedTransport()
        config = server.config
        self.authorization = b""
        """What each request shows, if anything."""
        self.protocol = cast("Any", config.http_protocol_class)(config, server.server_state, {}, loop)
        self.protocol.connection_made(self.transport)

    def authorize(self, requests: bytes) -> bytes:
        """Return requests, each of which has a line with its host, with what this client shows."""
        if not self.authorization:
            return requests
        return requests.replace(b"\r\nhost: ", b"\r\nauthorization: " + self.authorization + b"\r\nhost: ")

    def send(self, data: bytes) -> None:
        """Let ``data`` arrive, and turn the loop."""
        self.arrive(data)
        self.loop.turn()

    def arrive(self, data: bytes | memoryview) -> None:
        """Let ``data`` arrive in one read."""
        self.protocol.data_received(data)

    def ask(self, data: bytes) -> bytes:
        """Let ``data`` arrive and return what is answered."""
        self.send(data)
        return self.transport.take()

    def close(self) -> None:
        """The client is gone."""
        self.protocol.connection_lost(None)


def unbound_listener() -> socket.socket:
    """Return a socket that ``start`` may ask for its name."""
    return socket.socket()
