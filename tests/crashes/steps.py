"""Steps of writers, and how a call of one becomes the end of its process.

A step is a call that opens a transaction, sends, prepares, decides, commits, or writes down how far a writer is. It
has four sorts of moments: before it, at each of its requests (half of it was sent), after the server processed a
request and before its response is read (lost), and after the step. One run that ends by itself records all moments of
a writer; another run is then ended at each of them.

A request that a busy server refuses for now is the same request when it is repeated: how often that happens differs
from run to run, and the moments do not. So it has its number again, and lookups before it are counted the first time.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final, NamedTuple

from lading.mirror.state import MirrorState
from lading.model.errors import Unreachable
from lading.pipeline import ledger, sending_record, side_effects
from lading.spool.spool_log import Spool
from lading.tables.ingest import TableWriter
from lading.tables.local import LocalExecutor
from lading.transports.iggy.transport import IggyTransport
from lading.transports.kafka import transactions, writer
from lading.transports.kafka.cluster import KafkaCluster
from lading.transports.lading.blocks import BlockWriter
from lading.transports.lading.transport import LadingTransport
from lading.transports.nsq.queue import NsqQueue
from lading.transports.nsq.transport import NsqTransport
from tests.crashes import spark_driver

KINDS: Final = ("exception", "exit", "kill")
"""An error that the writer may handle, and a later run in the same process; ``os._exit``; ``kill -9``."""
EXIT_CODE: Final = 77
KAFKA_LOOKUPS: Final = frozenset({3, 10, 17, 18, 36})
"""API keys of Metadata, FindCoordinator, ApiVersions and logins: they come before a request, or do not."""


class Step(NamedTuple):
    """A call, by its owner and name there."""

    name: str
    owner: type | ModuleType
    call: str


STEPS: Final = (
    Step("open", LadingTransport, "begin"), Step("send", BlockWriter, "send"),
    Step("commit", LadingTransport, "commit"),
    Step("open", transactions.KafkaTransaction, "__init__"), Step("send", writer.KafkaWriter, "send"),
    Step("send", writer.KafkaWriter, "send_all"), Step("prepare", transactions.KafkaTransaction, "prepare"),
    Step("decide", transactions.KafkaDecision, "_write"), Step("commit", transactions, "end"),
    Step("send", IggyTransport, "send"), Step("send", NsqTransport, "send"),
    Step("write down", MirrorState, "begin"), Step("note", MirrorState, "finish"),
    Step("write down", ledger.Ledger, "begin"), Step("note", ledger.Ledger, "mark_done"),
    Step("write down", sending_record.SendingRecord, "note_begin"),
    Step("note", sending_record.SendingRecord, "note_done"), Step("note", side_effects, "write_document"),
    Step("write down", spark_driver.StreamDriver, "plan_batch"), Step("task", spark_driver, "run_task"),
    Step("note", spark_driver.StreamDriver, "note_batch"),
    Step("append", Spool, "append"), Step("finish", NsqQueue, "finish"),
    Step("stage", LocalExecutor, "write"), Step("publish", TableWriter, "publish"),
)  # fmt: skip


class Moment(NamedTuple):
    """A moment of the so-manieth call of a step; ``request`` counts from 1 in it, and is 0 before and after it."""

    step: str
    call: int
    when: str
    request: int = 0

    def __str__(self) -> str:
        return f"{self.when} {self.step} {self.call}" + (f", request {self.request}" if self.request else "")


@dataclass(slots=True)
class _Call:
    step: str
    number: int
    requests: int = 0
    is_awaited: bool = False
    is_lookup: bool = False
    """Whether the last request was a lookup."""
    is_repeating: bool = False
    """Whether the next request is the last one again."""
    thread: int = field(default_factory=threading.get_ident)


class StepTracer:
    """Records the moments that a process reaches, and ends it at one of them. Steps run in one thread at a time."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self._end_at: Moment | None = None
        self._kind = ""
        self._numbers: Counter[str] = Counter()
        self._calls: list[_Call] = []
        self.has_struck = False

    def install(self) -> None:
        """Put itself into every step and into sockets, in this process for good."""
        for step in STEPS:
            setattr(step.owner, step.call, self._wrap_step(step.name, getattr(step.owner, step.call)))
        send, replace = socket.socket.sendall, os.replace
        receivers = {name: getattr(socket.socket, name) for name in ("recv", "recv_into")}

        def send_and_trace(connection: socket.socket, data: Any, *more: Any) -> None:
            call = self._count_request(data)
            if call is not None and self._is_end(call, "at"):
                view = memoryview(data).cast("B")
                send(connection, view[: len(view) // 2])
                self.end(connection)
            send(connection, data, *more)

        def replace_and_trace(source: Any, target: Any, **named: Any) -> None:
            call = self._count_request()
            if call is not None:
                call.is_awaited = False
                if self._is_end(call, "at"):
                    self.end()
            replace(source, target, **named)

        def wrap_receive(receive: Callable[..., Any]) -> Callable[..., Any]:
            def receive_and_trace(connection: socket.socket, *arguments: Any) -> Any:
                received = receive(connection, *arguments)
                call = self._find_call()
                if call is not None and call.is_awaited:
                    call.is_awaited = False
                    if self._is_end(call, "lost"):
                        self.end(connection)
                return received

            return receive_and_trace

        pause = KafkaCluster.pause

        def pause_and_trace(pause_s: float) -> float:
            self._begin_repetition()
            return pause(pause_s)

        KafkaCluster.pause = staticmethod(pause_and_trace)  # type: ignore[method-assign]
        # the methods are those of a base class in C
        socket.socket.sendall = send_and_trace  # type: ignore[assignment, method-assign]
        os.replace = replace_and_trace  # type: ignore[assignment]
        for name, receive in receivers.items():
            setattr(socket.socket, name, wrap_receive(receive))

    def arm(self, moment: Moment | None, kind: str = "") -> None:
        """Count from the beginning, and end the process at a moment, once."""
        self._end_at, self._kind, self.has_struck = moment, kind, False
        self.moments = []
        self._numbers.clear()
        self._calls.clear()

    def _wrap_step(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def traced(*arguments: Any, **named: Any) -> Any:
            self._numbers[name] += 1
            here = _Call(name, self._numbers[name])
            if self._is_end(here, "before"):
                self.end()
            self._calls.append(here)
            try:
                result = call(*arguments, **named)
            finally:
                self._calls.remove(here)
            here.requests = 0
            if self._is_end(here, "after"):
                self.end()
            return result

        return traced

    def _find_call(self) -> _Call | None:
        """Return the innermost step that this thread is in: others read and write for themselves."""
        here = threading.get_ident()
        return next((call for call in reversed(self._calls) if call.thread == here), None)

    def _begin_repetition(self) -> None:
        call = self._find_call()
        if call is not None:
            call.requests -= not call.is_lookup
            call.is_repeating = True

    def _count_request(self, data: Any = b"") -> _Call | None:
        """Return the step that a request belongs to, as it is now; None for lookups of a repetition, too."""
        call = self._find_call()
        if call is None:
            return None
        is_lookup = int.from_bytes(memoryview(data).cast("B")[4:6], "big") in KAFKA_LOOKUPS
        if is_lookup and call.is_repeating:
            return None
        call.is_lookup, call.is_repeating = is_lookup, False
        call.requests += 1
        call.is_awaited = True
        return call

    def _is_end(self, call: _Call, when: str) -> bool:
        moment = Moment(call.step, call.number, when, call.requests)
        self.moments.append(moment)
        return moment == self._end_at

    def end(self, connection: socket.socket | None = None) -> None:
        """End the process, or raise what the end of a connection would raise, once."""
        self._end_at, self.has_struck = None, True
        if self._kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._kind == "exit":
            os._exit(EXIT_CODE)
        if connection is None:
            raise Unreachable("the matrix of crashes ends it here")
        connection.shutdown(socket.SHUT_RDWR)
        raise ConnectionResetError("the matrix of crashes cut the connection")
