"""Publications: from the bytes of a connection straight into the log's open chunk, answered when they last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ...broker.core.append import Balanced, ByNumber, PartitionChoice, WriteResult
from ...broker.core.pending_append import Append
from ...dialects import codes
from ...dialects.nsq import commands, limits, publishing, send_layout
from ...dialects.nsq.commands import ERROR, Command, frame
from ...dialects.nsq.errors import NsqProtocolError, fault_of, refused
from ...dialects.nsq.ext import first_text
from ...dialects.nsq.publishing import Stored
from ...model.errors import LimitExceeded
from ..base.route_cache import RouteCache
from ..base.services import now_us
from .node import Node, takes_ext

if TYPE_CHECKING:
    from ...broker.core.topology import Partition, Topic

Bytes = NDArray[np.uint8]
Store = Callable[[Bytes, int, int, int, int], Stored]
"""(array, at, base offset, partition, time in us) -> what was stored there."""

RUN_BYTES_MAX: Final = 256 << 10
"""A run of PUB commands is taken in pieces of this size: what one chunk holds a few of."""
_COUNT_BYTES: Final = 4
_COUNT_MAX: Final = (limits.REQUEST_BYTES_MAX - _COUNT_BYTES) // 5


@dataclass(frozen=True, slots=True)
class PublishRoute:
    """What a publishing line means, for as long as topics stay the same; ``partition`` where it can only be that one.

    ``failure`` is what a publication that the log does not take is called, ``size_max`` what a body may have.
    """

    command: Command
    topic: Topic
    choice: PartitionChoice
    partition: Partition | None
    takes_ext: bool
    name: str
    failure: str
    size_max: int
    joins: bool
    """Whether nothing in a command can be refused but its size, and all are answered alike."""


class Publication:
    """Messages on their way to the disk, and what their publisher hears then; the next command begins at ``end``."""

    __slots__ = ("answers", "append", "count", "end", "failure")

    def __init__(self, append: Append, answers: bytes, count: int, end: int, failure: str) -> None:
        self.append = append
        self.answers = answers
        """Frames for when the messages last."""
        self.count = count
        self.end = end
        self.failure = failure

    @property
    def done(self) -> bool:
        """Whether they last, or have not happened."""
        return self.append.done

    def answer(self) -> bytes:
        """The frames to send, now that it is done."""
        error = self.append.error
        return self.answers if error is None else frame(ERROR, str(fault_of(error, self.failure)).encode()) * self.count


class Publisher:
    """Takes publications; one for all connections of a face."""

    def __init__(self, node: Node, face: str) -> None:
        self._node = node
        self._broker = node.broker
        self.routes: RouteCache[bytes, PublishRoute] = RouteCache(node.broker)
        """By the line of a command."""
        self._labels = (face,)
        self._messages_in = node.services.metrics.messages_in.values

    def get_route(self, line: bytes) -> PublishRoute:
        """What a publishing line means that was met before, whatever became of its topic; Fault as in ``resolve``."""
        route = self.routes.get(line)
        if route is None:
            parsed = commands.read_line(line, 0, len(line))
            assert parsed is not None
            route = self.resolve(line, parsed.command, list(parsed.parameters))
        return route

    def resolve(self, line: bytes, command: Command, parameters: list[bytes]) -> PublishRoute:
        """What a publishing line means, remembered; Fault where it may not be published."""
        # a parameter too many is passed over, as it is by the server
        number = commands.partition_of(parameters[1]) if len(parameters) == 2 and not command.lacking else -1
        name = parameters[0].decode(errors="replace")
        topic = self._node.publishable(name, number)
        route = self.to(topic, command, number)
        self.routes.add(line, route)
        return route

    def to(self, topic: Topic, command: Command, number: int = -1) -> PublishRoute:
        """A route to a partition, -1 for any in turn."""
        choice: PartitionChoice = ByNumber(number) if number >= 0 else Balanced()
        fixed = topic.partition(max(number, 0)) if number >= 0 or len(topic.partitions) == 1 else None
        return PublishRoute(
            command,
            topic,
            choice,
            fixed,
            takes_ext(topic),
            topic.flat_name,
            command.failure_code,
            limits.REQUEST_BYTES_MAX if command.batch else limits.MESSAGE_BYTES_MAX,
            command.form == send_layout.PLAIN_FORM and not command.batch and not command.lacking,
        )

    def publish_run(
        self,
        route: PublishRoute,
        source: Bytes,
        start: int,
        end: int,
        line_bytes: int,
        first_end: int,
        who: object = None,
    ) -> Publication:
        """The PUB commands at ``source[start:end]``; the first is whole at ``first_end``. Fault where it is refused.

        ``who`` is as in ``Appender.append``, here and for batches.
        """
        end = min(end, max(start + RUN_BYTES_MAX, first_end))
        form, takes_ext = route.command.form or 0, route.takes_ext

        def store(array: Bytes, at: int, base_offset: int, number: int, time_us: int) -> Stored:
            where = (array, at, base_offset, number, time_us * 1000)
            return publishing.store_pubs(source, start, end, line_bytes, form, takes_ext, *where)

        room_bytes = publishing.pubs_room(end - start, line_bytes)
        stored, append = self._append(route, room_bytes, store, source, start + line_bytes, who)
        return Publication(append, stored.answers, stored.messages_count, stored.end, route.failure)

    def publish_identical(self, route: PublishRoute, source: Bytes, count: int, line_bytes: int, who: object) -> Append:
        """Just the ``count`` PUB commands that ``source`` is, of a route that ``joins``."""
        partition = route.partition or self._broker.partition_for(route.topic, route.choice)
        time_us = partition.log.append_time_us(now_us())
        number, time_ns = partition.number, 1_000 * time_us

        def write(array: Bytes, at: int, base_offset: int) -> WriteResult:
            stored_bytes = publishing.store_alike(source, count, line_bytes, array, at, base_offset, number, time_ns)
            return WriteResult(stored_bytes, count, time_us, time_us)

        room_bytes = publishing.alike_room(source.size, count)
        append = self._broker.appender.append(partition, codes.NSQ, 0, room_bytes, write, who)
        self._messages_in[self._labels] += count
        return append

    def publish_batch(
        self, route: PublishRoute, source: Bytes, start: int, size: int, who: object = None
    ) -> Publication:
        """The MPUB whose body is ``source[start : start + size]``; Fault where anything in it is refused."""
        form, takes_ext = route.command.form or 0, route.takes_ext
        if form == send_layout.EXT and not takes_ext:
            raise refused(send_layout.PLAIN_TOPIC, size, limits.MESSAGE_BYTES_MAX, route.name)
        count = require_count(_size_at(source, start) if size >= _COUNT_BYTES else -1)

        def store(array: Bytes, at: int, base_offset: int, number: int, time_us: int) -> Stored:
            where = (array, at, base_offset, number, time_us * 1000)
            return publishing.store_batch(source, start + _COUNT_BYTES, start + size, count, form, takes_ext, *where)

        room_bytes = publishing.batch_room(size, count)
        stored, append = self._append(route, room_bytes, store, source, start, who)
        return Publication(append, stored.answers, 1, start + size, route.failure)

    def deferred(
        self, route: PublishRoute, source: Bytes, start: int, end: int, line_bytes: int, delay_us: int
    ) -> Publication:
        """The DPUB that is ``source[start:end]``: it is seen when its time has come."""

        def store(array: Bytes, at: int, base_offset: int, number: int, time_us: int) -> Stored:
            where = (array, at, base_offset, number, time_us * 1000)
            return publishing.store_pubs(source, start, end, line_bytes, 0, route.takes_ext, *where)

        room_bytes = publishing.pubs_room(end - start, line_bytes)
        stored, append = self._append(route, room_bytes, store, source, start + line_bytes, None, delay_us)
        return Publication(append, stored.answers, 1, end, route.failure)

    def _append(
        self,
        route: PublishRoute,
        room_bytes: int,
        store: Store,
        source: Bytes,
        body_at: int,
        who: object,
        delay_us: int = 0,
    ) -> tuple[Stored, Append]:
        partition = route.partition or self._broker.partition_for(route.topic, route.choice)
        now = now_us()
        time_us = partition.log.append_time_us(now)
        stored: Stored | None = None

        def write(array: Bytes, at: int, base_offset: int) -> WriteResult:
            nonlocal stored
            stored = store(array, at, base_offset, partition.number, time_us)
            if not stored.messages_count or (stored.reason and route.command.batch):
                raise _refused(stored, route, source[body_at:])
            return WriteResult(stored.size_bytes, stored.messages_count, time_us, time_us)

        try:
            if delay_us:
                append = self._broker.postponed.append(partition, now + delay_us, codes.NSQ, 0, room_bytes, write)
            else:
                append = self._broker.appender.append(partition, codes.NSQ, 0, room_bytes, write, who)
        except LimitExceeded as error:
            raise NsqProtocolError("E_PUB_FAILED", str(error)) from None
        assert stored is not None
        self._messages_in[self._labels] += stored.messages_count
        return stored, append


def require_count(count: int) -> int:
    """How many messages an MPUB says it has; Fault E_BAD_BODY."""
    if not 0 < count <= _COUNT_MAX:
        raise NsqProtocolError("E_BAD_BODY", f"MPUB invalid message count {count}")
    return count


def _size_at(source: Bytes, at: int) -> int:
    return int.from_bytes(source[at : at + 4].tobytes(), "big", signed=True)


def _refused(stored: Stored, route: PublishRoute, published: Bytes) -> NsqProtocolError:
    """The fault for the first message that is refused; of a batch it is item ``stored.messages_count``."""
    batch = route.command.batch
    at = _item_at(published, stored.messages_count) if batch else 0
    size, most = _size_at(published, at), limits.MESSAGE_BYTES_MAX
    texts = {
        send_layout.NO_BODY: f"MPUB invalid message({stored.messages_count}) body size {size}",
        send_layout.TOO_LARGE: f"MPUB message too big {size} > {most}",
        send_layout.BAD_ITEM: f"MPUB invalid message({stored.messages_count}): the items do not add up to the body",
    }
    if batch and stored.reason in texts:
        return NsqProtocolError("E_BAD_MESSAGE", texts[stored.reason])
    traced = False
    if stored.reason == send_layout.BAD_TRACE:
        message = published[at + 4 : at + 4 + size].tobytes()
        traced = first_text(message[2 : 2 + int.from_bytes(message[:2], "big")], limits.TRACE_NAME)[1] is not None
    short = route.command.form == send_layout.EXT and size <= 2
    if stored.reason == send_layout.BAD_EXT_LENGTH and short:
        return NsqProtocolError("E_BAD_BODY", f"invalid body size {size} with ext json header enabled")
    if stored.reason == send_layout.BAD_ITEM:
        return NsqProtocolError("E_BAD_BODY", f"invalid body size {size} with trace id enabled")
    return refused(stored.reason, size, most, route.name, traced=traced)


def _item_at(body: Bytes, index: int) -> int:
    """Where item ``index`` of a batch begins."""
    at = _COUNT_BYTES
    for _ in range(index):
        at += 4 + max(_size_at(body, at), 0)
    return at
