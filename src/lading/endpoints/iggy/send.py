"""Sends of Iggy classic: from the request's bytes straight into the log's open chunk."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...broker.core.access.rights import Right
from ...broker.core.append.append import Balanced, ByHash, ByNumber, PartitionChoice, WriteResult, choose_partition
from ...broker.core.pending_append import Append
from ...dialects import codes
from ...dialects.iggy.classic import messages
from ...dialects.iggy.classic.commands import SendMessages
from ...dialects.iggy.classic.errors import REASON_OF
from ...dialects.iggy.classic.primitives import Identifier, Partitioning, PartitioningKind
from ...dialects.iggy.classic.releases import UNTOLD, Release
from ...model.errors import MalformedMessage, Reason
from ..base.route_cache import RouteCache
from ..base.services import Services

if TYPE_CHECKING:
    from ...broker.core.topology import Topic

SEND: Final = 101

Route = tuple["Topic", PartitionChoice]


Require = Callable[[Identifier, Identifier, Right], None]
"""Raises Refusal unless a user has a right on a topic, named by stream and topic, whether or not it exists."""


def allow_all(stream: Identifier, topic: Identifier, right: Right) -> None:
    """Allow everything: no users are set up."""


class Sender:
    """Handles send requests of one release; one for all its connections of an endpoint."""

    def __init__(self, services: Services, name: str, release: Release = UNTOLD, require: Require = allow_all) -> None:
        """``require`` is called for each new route, whose result is kept until rights change."""
        self._require = require
        self._release = release
        self._broker = services.broker
        self._random = messages.random_state()
        self._routes: RouteCache[bytes, Route] = RouteCache(services.broker.topology)
        self._labels = (name,)
        self._messages_in = services.metrics.messages_in.values

    def send(self, payload: memoryview, source: NDArray[np.uint8], start: int, who: object, now_us: int) -> Append:
        """Append the messages of the request ``payload``, which lies at ``source[start:]``.

        ``who`` is as in ``Appender.append``. If it raises Refusal or MalformedMessage, nothing is appended.
        """
        head = _head_size(payload)
        name = bytes(payload[:head])
        topic, choice = self._routes.get(name) or self._find_route(name, payload)
        return self.append(topic, choice, source, start + head, start + len(payload), now_us, who)

    def append(
        self,
        topic: Topic,
        choice: PartitionChoice,
        source: NDArray[np.uint8],
        start: int,
        end: int,
        now_us: int,
        who: object = None,
    ) -> Append:
        """Append the sent messages ``source[start:end]`` to the partition of ``choice``.

        Raises MalformedMessage if the request has none.
        """
        if end == start:
            raise MalformedMessage("a send holds no message", reason=Reason.INVALID_COUNT)
        partition = choose_partition(topic, choice)
        time_us = partition.log.append_time_us(now_us)

        def write(array: NDArray[np.uint8], at: int, base_offset: int) -> WriteResult:
            code, count, size_bytes = messages.restamp(
                source, start, end, array, at, base_offset, time_us, self._random
            )
            if code:
                raise MalformedMessage(f"message {count} of the request is refused", reason=REASON_OF[code])
            return WriteResult(size_bytes, count, time_us, time_us + count - 1)

        append = self._broker.appender.append(partition, codes.IGGY_CLASSIC, 0, messages.room(end - start), write, who)
        self._messages_in[self._labels] += append.count
        return append

    def _find_route(self, head: bytes, payload: memoryview) -> Route:
        """Return topic and partition choice of a head that was not met before. Raises Refusal if the topic does not
        exist.
        """
        command: Any = self._release.commands.parse_request(SEND, payload)
        assert isinstance(command, SendMessages)
        self._require(command.stream, command.topic, Right.WRITE)
        topic = self._broker.topology.topic(command.stream, command.topic)
        route = topic, choice_of(command.partitioning, self._release)
        self._routes.add(head, route)
        return route


def _head_size(payload: memoryview) -> int:
    """Return the bytes of stream, topic and partitioning: three times kind, length, value (iggy.md A2)."""
    at = 0
    for _ in range(3):
        if at + 2 > len(payload):
            raise MalformedMessage("the request ends inside its head", at=at)
        at += 2 + payload[at + 1]
    if at > len(payload):
        raise MalformedMessage("the request ends inside its head", at=len(payload))
    return at


def choice_of(partitioning: Partitioning, release: Release = UNTOLD) -> PartitionChoice:
    """Return the partition choice of a client of ``release`` in the broker's form."""
    return _CHOICES[partitioning.kind](partitioning.value, release)


_CHOICES: Final[dict[PartitioningKind, Callable[[bytes, Release], PartitionChoice]]] = {
    PartitioningKind.BALANCED: lambda value, release: Balanced(),
    PartitioningKind.PARTITION_ID: lambda value, release: ByNumber(
        int.from_bytes(value, "little") - release.first_partition
    ),
    PartitioningKind.MESSAGES_KEY: lambda value, release: ByHash(partial(_partition_by_key, value, release)),
}


def _partition_by_key(key: bytes, release: Release, partitions_count: int) -> int:
    return release.partition_of_key(key, partitions_count) - 1
