"""Publishing: from the bytes of a connection straight into the log's open chunk, with a response when it is durable.

Every command ends the same way: a kernel judges its messages while it stores them, they are appended, and a Publication
sends the responses. ``PublicationReader`` has several ways to this point, because most PUBs come alone, one for each
response, and the shorter ways leave out work that they do not need:

1. ``take_first``: a line that is not known yet. Its command, size, topic and rights are checked, then it is remembered.
2. ``take``: a known line. An MPUB, a DPUB, and commands that came together are a run: ``Publisher.publish``.
3. ``take``, if it is all that the client sent: through ``PublishCoalescer``, which appends at once what many clients
   send in one pass of the event loop: ``Publisher.publish_alike``.
4. ``take_repeated``: as 3, with the line of the command before, without a lookup.
5. ``_publish_walked``: an MPUB whose declared length does not fit its items.

Measured in calls (``tests/house/test_hot_path.py`` counts them) and CPU on a busy machine: a PUB alone takes 73 calls
and 27 us; 78 and 31 us without ``take_repeated``; 90 and 39 us if runs are the only way. 50 clients that send a PUB
each in one pass take 1,341, 1,591 and 3,415 calls: without the coalescer each PUB costs two and a half times as many.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ....broker.core.append.append import Balanced, ByNumber, PartitionChoice, Write, WriteResult, choose_partition
from ....broker.core.pending_append import Append
from ....dialects import codes
from ....dialects.nsq import commands, limits, publishing, send_layout
from ....dialects.nsq.commands import Command
from ....dialects.nsq.errors import NsqProtocolError
from ....model.errors import LimitExceeded
from ....model.lazy_dataclass import lazy_dataclass
from ...base.route_cache import RouteCache, UserRouteCaches
from ..fork import takes_ext
from .message_store import BatchStore, Bytes, MessageStore, RunStore
from .node import Node, TopicNeeded
from .publication import Publication

if TYPE_CHECKING:
    from ....broker.core.topology import Partition, Topic


@lazy_dataclass(frozen=True, slots=True)
class PublishRoute:
    """The route of a publishing line, valid until topics change; ``partition`` is set if only one is possible.

    ``failure`` is the error code if the log refuses a publication, ``size_max`` the bound of a body.
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
    """Whether a command can only be refused for its size, so that all of them get the same response."""


class Publisher:
    """Handles publications; one for all connections of an endpoint."""

    def __init__(self, node: Node, face: str) -> None:
        self._node = node
        self._broker = node.broker
        self.routes: RouteCache[bytes, PublishRoute] = RouteCache(node.broker.topology)
        """Routes by the line of a command."""
        self.user_routes: UserRouteCaches[bytes, PublishRoute] = UserRouteCaches(node.broker.topology)
        """Routes by user, once users are set up; each user may publish by its own."""
        self._labels = (face,)
        self._messages_in = node.services.metrics.messages_in.values

    @property
    def is_congested(self) -> bool:
        """Whether more bytes wait for the disk than the setting allows: clients with a pending response then wait."""
        return self._broker.appender.congested

    @property
    def is_strict(self) -> bool:
        """Whether refusals are in the words of the fork's server."""
        return self._node.strict

    def require_name(self, command: Command, name: bytes) -> None:
        """Raise NsqProtocolError for an invalid topic name, as upstream does before it looks at the body."""
        self._node.require_name(command.name, name.decode(errors="replace"))

    def find_route(self, line: bytes) -> PublishRoute:
        """Return the route of a publishing line that was dropped from ``routes``; raises Fault as ``resolve`` does.

        Its messages are accepted already: a topic that was deleted meanwhile is created at once.
        """
        parsed = commands.read_line(line, 0, len(line))
        assert parsed is not None
        try:
            return self.resolve(line, parsed.command, list(parsed.parameters))
        except TopicNeeded:
            self._node.create_at_once(parsed.parameters[0].decode())
            return self.resolve(line, parsed.command, list(parsed.parameters))

    def resolve(self, line: bytes, command: Command, parameters: list[bytes]) -> PublishRoute:
        """Return the route of a publishing line, and remember it.

        Raises NsqProtocolError if it may not be published, TopicNeeded if the topic has to be created first.
        """
        # an extra parameter is ignored, as the server does
        number = commands.partition_of(parameters[1]) if len(parameters) == 2 and not command.lacking else -1
        name = parameters[0].decode(errors="replace")
        topic = self._node.publishable(name, number)
        route = self.to(topic, command, number)
        self.routes.add(line, route)
        return route

    def to(self, topic: Topic, command: Command, number: int = -1) -> PublishRoute:
        """Return a route to a partition; -1 stands for all in turn."""
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

    def publish(
        self,
        route: PublishRoute,
        source: Bytes,
        start: int,
        body: int,
        end: int,
        stop: int,
        *,
        now_us: int,
        who: object = None,
        delay_us: int = 0,
    ) -> Publication:
        """Publish the command at ``source[start:end]``, and the commands after it with the same line, up to ``stop``.

        The command's body begins at ``body``. ``who`` is as in ``Appender.append``; messages become visible after
        ``delay_us``. Raises a Fault if any item of an MPUB is refused, or the first command of a run.
        """
        command = route.command
        if command.batch:
            messages: MessageStore = BatchStore(command, route.name, route.takes_ext, source, body, end)
        else:
            if stop > end:
                stop = min(stop, max(start + publishing.run_bytes_max(), end))
            messages = RunStore(command, route.name, route.takes_ext, source, start, body, stop)
        partition = route.partition or choose_partition(route.topic, route.choice)
        write = partial(messages.store, partition.number, partition.log.append_time_us(now_us))
        append = self._append(partition, messages.room_bytes, write, who, now_us + delay_us if delay_us else 0)
        publication = Publication(route.failure, messages.answers, messages.commands_count, messages.end)
        publication.append, publication.messages_count = append, append.count
        append.add_done_callback(publication.settle)
        return publication

    def publish_alike(
        self, route: PublishRoute, source: Bytes, count: int, line_bytes: int, who: object, now_us: int
    ) -> Append:
        """Publish the ``count`` PUB commands that fill ``source``, for a route that ``joins``."""
        partition = route.partition or choose_partition(route.topic, route.choice)
        number, time_us = partition.number, partition.log.append_time_us(now_us)

        def write(array: Bytes, at: int, base_offset: int) -> WriteResult:
            size_bytes = publishing.store_alike(
                source, count, line_bytes, array, at, base_offset, number, time_us * 1_000
            )
            return WriteResult(size_bytes, count, time_us, time_us)

        return self._append(partition, source.size + publishing.GROWTH_BYTES * count, write, who)

    def _append(self, partition: Partition, room_bytes: int, write: Write, who: object, due_us: int = 0) -> Append:
        """Append messages, visible to readers at once or from ``due_us`` on."""
        try:
            if due_us:
                append = self._broker.postponed.append(partition, due_us, codes.NSQ, 0, room_bytes, write)
            else:
                append = self._broker.appender.append(partition, codes.NSQ, 0, room_bytes, write, who)
        except LimitExceeded as error:
            raise NsqProtocolError("E_PUB_FAILED", str(error)) from None
        self._messages_in[self._labels] += append.count
        return append
