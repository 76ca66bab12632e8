"""Sends of Iggy classic: from the request's bytes straight into the log's open chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

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
    from ...broker.core.topology import Partition, Topic

SEND: Final = 101

Route = tuple["Topic", PartitionChoice]


Require = Callable[[Identifier, Identifier, Right], None]
"""Raises Refusal unless a user has a right on a topic, named by stream and topic, whether or not it exists."""


def allow_all(stream: Identifier, topic: Identifier, right: Right) -> None:
    """Allow everything: no users are set up."""


class LocatedMessages(NamedTuple):
    """The place of the messages of a request: their index, if the release has one, the first one, and the end."""

    index_at: int
    first_at: int
    end: int
    messages_count: int
    """Their number, if the request has it."""


class Sender:
    """Handles send requests of one release; one for all its connections of an endpoint."""

    _dialect: ClassVar[int] = codes.IGGY_CLASSIC
    """The dialect that messages are stored in."""

    def __init__(self, services: Services, name: str, release: Release = UNTOLD, require: Require = allow_all) -> None:
        """``require`` is called for each new route, whose result is kept until rights change."""
        self._require = require
        self.release = release
        self._broker = services.broker
        self.topology = services.broker.topology
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

    def find_head(self, payload: memoryview) -> bytes:
        """Return the bytes before the messages, or their number, of a request that was sent without an error."""
        return bytes(payload[: _head_size(payload)])

    def get_route(self, head: bytes) -> Route | None:
        """Return the route of requests with this head, if it is known and valid."""
        return self._routes.get(head)

    def append_requests(
        self,
        partition: Partition,
        source: NDArray[np.uint8],
        spans: Sequence[tuple[int, int]],
        head_end: int,
        now_us: int,
        who: object,
    ) -> Append:
        """Append the messages of several requests, each in a span of ``source``, as if they came one after the other.

        ``head_end`` is the place after the head in each. If it raises Refusal or MalformedMessage, nothing is appended.
        """
        messages_of = [self._locate(source, start + head_end, end) for start, end in spans]
        time_us = partition.log.append_time_us(now_us)

        def write(array: NDArray[np.uint8], at: int, base_offset: int) -> WriteResult:
            begun, offset, longest = at, base_offset, 0
            for located in messages_of:
                code, count, size_bytes = self._restamp(source, located, array, at, offset, time_us)
                if code:
                    raise MalformedMessage(f"message {count} of a request is refused", reason=REASON_OF[code])
                at, offset, longest = at + size_bytes, offset + count, max(longest, count)
            return WriteResult(at - begun, offset - base_offset, time_us, time_us + longest - 1)

        room_bytes = sum(map(self._measure_room, messages_of))
        append = self._broker.appender.append(partition, self._dialect, 0, room_bytes, write, who)
        self._messages_in[self._labels] += append.count
        return append

    def _locate(self, source: NDArray[np.uint8], head_end: int, end: int) -> LocatedMessages:
        """Return the place of the messages of a request. Raises MalformedMessage if it has none."""
        return LocatedMessages(head_end, head_end, end, 0)

    def _measure_room(self, located: LocatedMessages) -> int:
        """Return how many bytes ``_restamp`` may need for the messages of a request."""
        return messages.room(located.end - located.first_at)

    def _restamp(
        self,
        source: NDArray[np.uint8],
        located: LocatedMessages,
        target: NDArray[np.uint8],
        to: int,
        base_offset: int,
        time_us: int,
    ) -> tuple[int, int, int]:
        """Store the messages of a request: (code or 0, messages, bytes written)."""
        return messages.restamp(source, located.first_at, located.end, target, to, base_offset, time_us, self._random)

    def _find_route(self, head: bytes, payload: memoryview) -> Route:
        """Return topic and partition choice of a head that was not met before. Raises Refusal if the topic does not
        exist.
        """
        command: Any = self.release.commands.parse_request(SEND, payload)
        assert isinstance(command, SendMessages)
        self._require(command.stream, command.topic, Right.WRITE)
        topic = self._broker.topology.topic(command.stream, command.topic)
        route = topic, choice_of(command.partitioning, self.release)
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
