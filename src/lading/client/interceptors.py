"""Interceptors: code that sees every message on its way out or in, in KIP-82's shape (kafka.md 1.3).

They may read and change headers. What an interceptor raises is logged and swallowed: the chain goes on with the last
good message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..model.headers import Headers
from ..model.message import Message

LOG = logging.getLogger("lading.client")
T = TypeVar("T")


@dataclass(slots=True)
class Outgoing:
    """A message before it is sent; ``payload`` and ``key`` are still the user's values, ``headers`` writable."""

    topic: str
    payload: Any
    key: Any = None
    headers: Headers = field(default_factory=Headers)
    partition: int | None = None
    timestamp_us: int | None = None


class ProducerInterceptor:
    """Base of producer interceptors; override what you need."""

    def on_send(self, message: Outgoing) -> Outgoing:
        """Before serialisers and partitioning; what is returned goes on."""
        return message

    def on_acknowledged(self, message: Outgoing, offset: int | None, error: Exception | None) -> None:
        """After the server answered, ``error`` None when the message is in; ``offset`` where the server says it."""

    def close(self) -> None:
        """When the producer closes."""


class ConsumerInterceptor:
    """Base of consumer interceptors; override what you need."""

    def on_consume(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Before the user sees the messages; what is returned goes on. Headers are writable here."""
        return messages

    def on_commit(self, positions: Mapping[tuple[str, int], int]) -> None:
        """After positions were stored, by (topic, partition): the next offset."""

    def close(self) -> None:
        """When the consumer closes."""


def apply_interceptors(calls: Sequence[Callable[[T], T]], value: T) -> T:
    """``value`` through every call in order; a call that raises is logged and left out."""
    for call in calls:
        try:
            returned = call(value)
        except Exception:
            LOG.warning("interceptor %s failed; going on without it", _name(call), exc_info=True)
            continue
        if returned is None:
            LOG.warning("interceptor %s returned nothing; going on with what it was given", _name(call))
        else:
            value = returned
    return value


def notify_interceptors(calls: Sequence[Callable[..., None]], *arguments: Any) -> None:
    """Call every one with the arguments; one that raises is logged."""
    for call in calls:
        try:
            call(*arguments)
        except Exception:
            LOG.warning("interceptor %s failed; going on without it", _name(call), exc_info=True)


def _name(call: Callable[..., Any]) -> str:
    owner = getattr(call, "__self__", None)
    return f"{type(owner).__name__}.{call.__name__}" if owner is not None else repr(call)
