"""The client for asyncio: Producer, Consumer and Admin with the names and settings of those in ``lading``.

Each runs the blocking client in one thread of its own, one call after the other, so that both have the same promises.
Tasks of one event loop may share an object; other loops, threads and forked processes must create their own.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar
from uuid import UUID

from .client import admin, consumer, producer
from .client.interceptors import LOG
from .client.read_bounds import TopicPartition
from .model.errors import LocalError
from .model.headers import HeadersLike
from .model.message import Message
from .transports.interface import TopicMeta

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Admin", "Consumer", "Producer"]

C = TypeVar("C", bound=producer.Producer | consumer.Consumer | admin.Admin)
P = ParamSpec("P")
R = TypeVar("R")


def _settings_of(blocking: Callable[P, object]) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Give ``__init__`` the arguments of the blocking class: for type checkers, editors and ``inspect.signature``."""

    def apply(method: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        method.__wrapped__ = blocking.__init__  # type: ignore[attr-defined]
        return method

    return apply


class _ReadInterrupted(Exception):
    """The task that waited for messages was cancelled, or the consumer was closed."""


class _InterruptibleConsumer(consumer.Consumer):
    """A consumer whose wait for messages ends, at the next round, when its task does."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.interrupted = threading.Event()
        super().__init__(*arguments, **settings)

    def _maintain_membership(self) -> None:
        if self.interrupted.is_set():
            raise _ReadInterrupted
        super()._maintain_membership()


class _ThreadedClient(Generic[C]):
    """One blocking client in a thread of its own; the ``async with`` block opens and closes it."""

    def __init__(self, create: Callable[[], C], noun: str) -> None:
        self._create = create
        self._noun = noun
        self._client: C | None = None
        self._is_closed = False
        self._lock = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, f"lading-{noun}")
        self._process_id = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        self._usable()
        self._loop = asyncio.get_running_loop()

        def open_() -> None:
            self._client = self._create()

        try:
            await self._run_to_end(open_)
        except BaseException:
            # a client that a cancelled task abandoned is closed by the thread as soon as it is open
            self._is_closed = True
            self._thread.submit(self._close_client, True)
            self._thread.shutdown(wait=False)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(error)

    async def close(self) -> None:
        """End it as the ``async with`` block does. Further calls do nothing."""
        await self._close(None)

    async def _close(self, error: BaseException | None) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._process_id != os.getpid():
            # thread and connection are those of the process that forked this one
            return
        self._interrupt()
        future = self._thread.submit(self._close_client, error is not None)
        self._thread.shutdown(wait=False)
        try:
            # a second cancellation lets the thread finish alone
            await asyncio.shield(asyncio.wrap_future(future))
        except Exception:
            if error is None:
                raise
            LOG.warning("closing the %s failed", self._noun, exc_info=True)

    def _close_client(self, failed: bool) -> None:
        if self._client is not None:
            self._client.close()

    def _interrupt(self) -> None:
        """Make the thread end a wait that may be long."""

    def _usable(self) -> C | None:
        if self._is_closed:
            raise LocalError(f"this {self._noun} is closed; make a new one")
        return self._client

    def _require_open(self) -> C:
        client = self._usable()
        if client is None:
            raise LocalError(f"this {self._noun} is not open; use it within 'async with'")
        return client

    async def _run(self, call: Callable[..., R], *arguments: Any, **named: Any) -> R:
        """Run a call in the thread, after those before it. Cancelling drops it, if it has not begun."""
        return await asyncio.wrap_future(self._submit(partial(call, *arguments, **named)))

    async def _run_to_end(self, call: Callable[..., R], *arguments: Any) -> R:
        """Run a call in the thread to its end, whatever happens to the task that waits."""
        return await asyncio.shield(asyncio.wrap_future(self._submit(partial(call, *arguments))))

    def _submit(self, call: Callable[[], R]) -> Future[R]:
        """Hand a call to the thread. Raises LocalError in another loop, or in a forked process, which has no thread."""
        if self._process_id != os.getpid():
            belongs, each = "the process that forked this one", "process"
        elif self._loop is not asyncio.get_running_loop():
            belongs, each = "another event loop", "loop"
        else:
            return self._thread.submit(call)
        raise LocalError(f"this {self._noun} belongs to {belongs}; create one in each {each}")


class AsyncProducer(_ThreadedClient[producer.Producer]):
    """``lading.Producer`` for ``async with``; the arguments are the same.

    ``send`` waits while a full batch leaves, so that a program cannot accept more than it can send. When a ``send`` is
    cancelled its message may have been accepted; accepted messages are sent all the same, at the end of the block too.
    """

    @_settings_of(producer.Producer)
    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(lambda: producer.Producer(*arguments, **settings), "producer")

    async def send(
        self,
        topic: str,
        payload: Any,
        *,
        key: Any = None,
        headers: HeadersLike = None,
        partition: int | None = None,
        timestamp: datetime | int | None = None,
        id: bytes | int | UUID | None = None,
    ) -> None:
        """Accept one message; see ``lading.Producer.send``."""
        await self._run(
            self._require_open().send,
            topic,
            payload,
            key=key,
            headers=headers,
            partition=partition,
            timestamp=timestamp,
            id=id,
        )

    async def send_batch(self, topic: str, batch: pa.RecordBatch | pa.Table, *, partition: int | None = None) -> None:
        """Send messages that are in Arrow form; all are acknowledged when this returns."""
        await self._run(self._require_open().send_batch, topic, batch, partition=partition)

    async def send_batches(
        self, topic: str, batches: Iterable[pa.RecordBatch | pa.Table], *, partition: int | None = None
    ) -> int:
        """Send many such batches; return how many messages, after all are acknowledged."""
        return await self._run(self._require_open().send_batches, topic, batches, partition=partition)

    async def flush(self) -> None:
        """Send all waiting messages; every message accepted so far is acknowledged when this returns."""
        await self._run_to_end(self._require_open().flush)

    @property
    def unsent(self) -> int:
        """Return how many messages wait: collected, or kept after a failure."""
        return self._require_open().unsent


class AsyncConsumer(_ThreadedClient[_InterruptibleConsumer]):
    """``lading.Consumer`` for ``async with`` and ``async for``; the arguments are the same.

    Messages that a cancelled ``poll`` or iteration had read are not lost: the next one returns them, and they do not
    count as done. If an exception, cancellation included, ends the block, the last message returned does not count as
    done either.
    """

    @_settings_of(consumer.Consumer)
    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(lambda: _InterruptibleConsumer(*arguments, **settings), "consumer")
        self._timeout_s = settings.get("timeout_s")
        self._late: tuple[object, pa.RecordBatch] | None = None
        """The columns of a call of ``batches``, and a batch that the thread has read for it and no task has received
        yet."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        found = await self._take(1, self._timeout_s)
        if not found:
            raise StopAsyncIteration
        return found[0]

    async def poll(self, max_messages: int = 500, timeout_s: float = 1.0) -> list[Message]:
        """Return up to ``max_messages`` as soon as there is one, or an empty list after ``timeout_s`` without any."""
        return await self._take(max_messages, timeout_s)

    async def batches(self, columns: str | Sequence[str] | None = None) -> AsyncIterator[pa.RecordBatch]:
        """Yield the same messages as Arrow batches; see ``lading.Consumer.batches``.

        A batch that an iteration had read when it was cancelled is the first of the next, which has to ask for the same
        columns: LocalError otherwise.
        """
        key = columns if columns is None or isinstance(columns, str) else tuple(columns)
        found: Iterator[pa.RecordBatch] | None = None
        while True:
            async with self._lock:
                client = self._require_open()
                if found is None:
                    found = client.batches(columns)
                if self._late is None:
                    await self._read(client, partial(self._read_late, key, found))
                if self._late is None:
                    return
                read_for, batch = self._late
                if read_for != key:
                    raise LocalError(
                        f"a batch of columns={read_for!r} was read for a task that was cancelled; iterate over "
                        "batches of the same columns first"
                    )
                # here and not in the thread: whom a cancelled task has not got, the next one gets
                self._late = None
            yield batch

    def _read_late(self, key: object, batches: Iterator[pa.RecordBatch]) -> None:
        # the read of a task that was cancelled may have ended after this one was asked for
        if self._late is None and (batch := next(batches, None)) is not None:
            self._late = key, batch

    async def commit(self) -> None:
        """Store the group's positions after all messages returned so far."""
        async with self._lock:
            await self._run_to_end(self._require_open().commit)

    async def requeue(self, message: Message, delay_s: float = 0.0) -> None:
        """Give a message of a queue back; see ``lading.Consumer.requeue``."""
        async with self._lock:
            await self._run_to_end(self._require_open().requeue, message, delay_s)

    async def touch(self, message: Message) -> None:
        """Begin the time-out of a message of a queue anew; see ``lading.Consumer.touch``."""
        async with self._lock:
            await self._run_to_end(self._require_open().touch, message)

    async def seek(self, partition: int, offset: int, topic: str | None = None) -> None:
        """Continue at ``offset`` of a partition; ``topic`` may be omitted if there is only one."""
        async with self._lock:
            await self._run_to_end(self._require_open().seek, partition, offset, topic)

    async def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next message of each (topic, partition)."""
        async with self._lock:
            return await self._run_to_end(self._require_open().positions)

    async def damage(self) -> dict[TopicPartition, list[tuple[int, int]]]:
        """Return, by (topic, partition), the ranges of damaged messages that ``on_loss="skip"`` passed over."""
        async with self._lock:
            return await self._run_to_end(self._require_open().damage)

    async def lag(self) -> dict[TopicPartition, int]:
        """Return for each (topic, partition) how many offsets there are from the position to the present end."""
        async with self._lock:
            return await self._run_to_end(self._require_open().lag)

    async def _take(self, max_messages: int, timeout_s: float | None) -> list[Message]:
        async with self._lock:
            client = self._require_open()
            await self._read(client, lambda: client.prefetch(timeout_s))
            # here and not in the thread: whom a cancelled task has not got, the next one gets
            return client.take(max_messages)

    async def _read(self, client: _InterruptibleConsumer, read: Callable[[], object]) -> None:
        """Read in the thread; a task that is cancelled meanwhile ends that too."""

        def read_unless_closed() -> None:
            client.interrupted.clear()
            if self._is_closed:
                raise _ReadInterrupted
            read()

        try:
            await self._run(read_unless_closed)
        except asyncio.CancelledError:
            self._interrupt()
            raise
        except _ReadInterrupted:
            raise LocalError("this consumer is closed; make a new one") from None

    def _close_client(self, failed: bool) -> None:
        if self._client is not None:
            self._client.close(failed=failed)

    def _interrupt(self) -> None:
        if self._client is not None:
            self._client.interrupted.set()


class AsyncAdmin(_ThreadedClient[admin.Admin]):
    """``lading.Admin`` for ``async with``; the arguments are the same."""

    @_settings_of(admin.Admin)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(lambda: admin.Admin(*arguments, **options), "admin")

    async def create_topic(self, name: str, partitions: int = 1, *, extended: bool = False) -> TopicMeta:
        """Create a topic; see ``lading.Admin.create_topic``."""
        return await self._run(self._require_open().create_topic, name, partitions, extended=extended)

    async def empty_topic(self, name: str) -> int:
        """Delete all messages of a topic and keep it; see ``lading.Admin.empty_topic``."""
        return await self._run(self._require_open().empty_topic, name)

    async def extend_topic(self, name: str) -> None:
        """Make a plain NSQ topic an extended one; see ``lading.Admin.extend_topic``."""
        await self._run(self._require_open().extend_topic, name)

    async def list_topics(self) -> list[TopicMeta]:
        """Return all topics with their partitions."""
        return await self._run(self._require_open().list_topics)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its messages."""
        await self._run(self._require_open().delete_topic, name)


Producer, Consumer, Admin = AsyncProducer, AsyncConsumer, AsyncAdmin
