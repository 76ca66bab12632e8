"""Interceptors: code that is called with every message sent or received, as in KIP-82 (kafka.md 1.3).

They may read and change headers. An error of an interceptor is logged and not raised: the chain continues with the
last good message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..model.headers import Headers
from ..model.message import Message
from ..transports.interface import TraceReceipt

LOG = logging.getLogger("lading.client")
T = TypeVar("T")


@dataclass(slots=True)
class Outgoing:
    """A message before it is sent: ``payload`` and ``key`` as the caller passed them, ``headers`` writable."""

    topic: str
    payload: Any
    key: Any = None
    headers: Headers = field(default_factory=Headers)
    partition: int | None = None
    timestamp_us: int | None = None
    id: bytes | None = None
    trace: TraceReceipt | None = None
    """The receipt after the acknowledgement, if the message has a ``##trace_id`` and the server returns one."""


class ProducerInterceptor:
    """Base class of producer interceptors; override what you need."""

    def on_send(self, message: Outgoing) -> Outgoing:
        """Return the message to send. Called before serialisers and partitioning."""
        return message

    def on_acknowledgement(self, message: Outgoing, offset: int | None, error: Exception | None) -> None:
        """Called after the response: ``error`` is None on success, ``offset`` None if the server does not report it."""

    def close(self) -> None:
        """Called when the producer closes."""


class ConsumerInterceptor:
    """Base class of consumer interceptors; override what you need."""

    def on_consume(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages that the caller gets. Their headers are still writable."""
        return messages

    def on_commit(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Called after positions were stored: the next offset by (topic, partition)."""

    def close(self) -> None:
        """Called when the consumer closes."""


def apply_interceptors(calls: Sequence[Callable[[T], T]], value: T) -> T:
    """Pass ``value`` through all calls in order; an error is logged and that call skipped."""
    for call in calls:
        try:
            returned = call(value)
        except Exception:
            LOG.warning("interceptor %s failed; continuing without it", _name(call), exc_info=True)
            continue
        if returned is None:
            LOG.warning("interceptor %s returned nothing; continuing with its input", _name(call))
        else:
            value = returned
    return value


def notify_interceptors(calls: Sequence[Callable[..., None]], *arguments: Any) -> None:
    """Call all with the arguments; errors are logged."""
    for call in calls:
        try:
            call(*arguments)
        except Exception:
            LOG.warning("interceptor %s failed; continuing without it", _name(call), exc_info=True)


def _name(call: Callable[..., Any]) -> str:
    owner = getattr(call, "__self__", None)
    return f"{type(owner).__name__}.{call.__name__}" if owner is not None else repr(call)
