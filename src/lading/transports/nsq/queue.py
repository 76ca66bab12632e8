"""A subscription to an NSQ channel over all nodes that have the topic, seen as one partition of a log.

A queue has no offsets: messages are numbered as they arrive, from 0, for as long as the subscription lives. Storing a
position finishes (FIN) everything before it; what was not finished goes to any client when the connection ends.
"""

from __future__ import annotations

import logging
import random
import select
import struct
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from ...dialects.nsq.commands import write
from ...dialects.nsq.encode import record
from ...model.errors import LadingError, LocalError, MalformedMessage, Unreachable
from ...model.run import Run
from ..fetched import FetchResult
from ..interface import Position
from .connection import IdentifyOptions, NsqConnection, NsqRefusal
from .lookup import Discovery, NsqdAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LOG: Final = logging.getLogger("lading.client")
LOOK_S: Final = 60.0
"""Nodes are looked up again after this long, give or take a quarter."""
UNFINISHED_BYTES_MAX: Final = 512 << 20
"""Size of unfinished messages from which on no more are read: a server that is asked for 2,500 messages does not know
how much memory there is for them, and a hostile one sends more than it is asked for."""
BEAT_S: Final = 10.0
"""How often servers get a sign of life while nothing of theirs is read."""
PAUSE_S: Final = 0.2
PAUSE_S_MAX: Final = 10.0
CODE: Final = 5
"""The dialect's number in chunk envelopes."""

_HEAD: Final = struct.Struct(">qH16s")
_NO_EXT: Final = 0


@dataclass(slots=True)
class _SubscribedNode:
    """A node, the connection to it, and its last failure with the time of the next attempt."""

    node: NsqdAddress
    connection: NsqConnection | None = None
    again_at: float = 0.0
    pause_s: float = PAUSE_S
    error: LadingError | None = None
    logged_away: bool = False


@dataclass(slots=True)
class Received:
    """One message: as it is stored (dialect nsq), its node, its 16-byte id, and the number of its attempt."""

    stored: bytes
    connection: NsqConnection
    message_id: bytes
    attempts: int
    time_ns: int
    is_requeued: bool = False

    @property
    def identity(self) -> tuple[object, ...]:
        """Ids begin anew when an nsqd does; with node and time they identify messages."""
        return self.connection.place, self.message_id, self.time_ns

    @property
    def timestamp_us(self) -> int:
        """When it was published."""
        return self.time_ns // 1000


@dataclass(slots=True)
class _UnfinishedMessages:
    """Messages that are not finished; the first of them has number ``first``."""

    first: int = 0
    messages: deque[Received] = field(default_factory=deque)
    size_bytes: int = 0
    requeued_count: int = 0
    """How many of them were given back, so that they are not in flight any more."""

    def append(self, message: Received) -> None:
        """Add the next message."""
        self.messages.append(message)
        self.size_bytes += len(message.stored)

    def pop_first(self) -> Received:
        """Remove the first message, which is finished, and return it."""
        message = self.messages.popleft()
        self.first += 1
        self.size_bytes -= len(message.stored)
        self.requeued_count -= message.is_requeued
        return message


class NsqQueue:
    """A member of a channel: ``in_flight`` messages at most are with it, over all nodes together."""

    generation = 0
    dialect = CODE

    def __init__(
        self,
        discovery: Discovery,
        connect: Callable[[str, int, IdentifyOptions], NsqConnection],
        topic: str,
        channel: str,
        identity: IdentifyOptions,
        *,
        in_flight: int,
    ) -> None:
        """Connects to every node that has the topic; Unreachable or NsqRefusal if none can be talked to.

        ``connect`` connects to a host and port, and says who this is.
        """
        self.topic = topic
        self.channel = channel
        self.partitions: Sequence[tuple[str, int]] = [(topic, 0)]
        self._discovery = discovery
        self._identity = identity
        self._in_flight = in_flight
        self._connect_to = connect
        self._nodes: dict[NsqdAddress, _SubscribedNode] = {}
        self._window = _UnfinishedMessages()
        self._look_at = self._beat_at = 0.0
        self._stopped = False
        self._closed = False
        self._joined = False
        self._look()
        self._connect()
        failed = [one.error for one in self._nodes.values() if one.error is not None]
        if failed and not self._list_connections():
            raise failed[0]
        self._joined = True

    # -- as a membership

    @property
    def is_rebalancing(self) -> bool:
        """Whether half of the messages that may be in flight, or of the memory for them, are unfinished."""
        window = self._window
        return 2 * len(window.messages) >= self._in_flight or 2 * window.size_bytes >= UNFINISHED_BYTES_MAX

    def heartbeat(self) -> bool:
        """Respond to the servers' heartbeats; the assignment never changes."""
        self._receive(0.0)
        return False

    def position(self, topic: str, partition: int) -> Position | None:
        """Return the number of the first message that is not finished."""
        return Position(self._window.first)

    def store(self, topic: str, partition: int, position: Position) -> None:
        """Finish everything before a number; what its node has given to others meanwhile stays theirs."""
        self.finish(position.offset)

    def stop(self) -> None:
        """Ask for no more messages (CLS); those that arrived can still be finished. Further calls do nothing.

        A FIN that is sent before this makes room for the next message: that one would be on its way here already, and
        be delivered again after those that wait.
        """
        if self._stopped:
            return
        self._stopped = True
        for connection in self._list_connections():
            try:
                connection.ask(write("CLS"))
                self._collect_messages(connection)
            except (Unreachable, NsqRefusal, MalformedMessage):
                connection.close()

    def leave(self) -> None:
        """End the subscription: unfinished messages are delivered again, to any consumer."""
        if self._closed:
            return
        self._closed = True
        self.stop()
        for connection in self._list_connections():
            try:
                mine = [
                    one.message_id
                    for one in self._window.messages
                    if one.connection is connection and not one.is_requeued
                ]
                # upstream's nsqd waits for their time-out otherwise
                connection.send(b"".join(write("REQ", 0, message_id=one) for one in mine))
                connection.end()
            except (Unreachable, NsqRefusal, MalformedMessage):
                connection.close()

    # -- receiving

    @property
    def end(self) -> int:
        """The number that the next message gets."""
        return self._window.first + len(self._window.messages)

    def fetch(self, offset: int, *, max_messages: int | None, wait_ms: int) -> FetchResult:
        """Return the messages from a number on; wait for one if none has arrived."""
        until = time.monotonic() + wait_ms / 1000
        self._receive(0.0)
        while offset >= self.end and (left_s := until - time.monotonic()) > 0:
            self._receive(min(left_s, 0.5))
        found = self.messages(offset, max_messages)
        runs = [run_of(found, offset)] if found else []
        end = offset + len(found)
        return FetchResult(self.topic, 0, runs, end, self._window.first, self.end)

    def messages(self, offset: int, count: int | None = None) -> list[Received]:
        """Return messages that are not finished, from a number on."""
        skipped = max(offset - self._window.first, 0)
        listed = list(self._window.messages)[skipped:]
        return listed if count is None else listed[:count]

    def finish(self, offset: int) -> None:
        """Finish everything before a number."""
        bursts: dict[NsqConnection, list[bytes]] = {}
        window = self._window
        while window.first < offset and window.messages:
            done = window.pop_first()
            if done.is_requeued:
                continue
            bursts.setdefault(done.connection, []).append(write("FIN", message_id=done.message_id))
        for connection, burst in bursts.items():
            if not connection.broken:
                try:
                    connection.send(b"".join(burst))
                except Unreachable as error:
                    self._drop_connection(connection, error)

    def requeue(self, offset: int, delay_ms: int) -> None:
        """Give a message back (REQ): its node delivers it again after the delay, to any reader of the channel."""
        message = self._find_in_flight(offset)
        self._send_command(message, write("REQ", delay_ms, message_id=message.message_id))
        message.is_requeued = True
        self._window.requeued_count += 1

    def touch(self, offset: int) -> None:
        """Begin a message's time-out anew (TOUCH)."""
        message = self._find_in_flight(offset)
        self._send_command(message, write("TOUCH", message_id=message.message_id))

    def _send_command(self, message: Received, command: bytes) -> None:
        try:
            message.connection.send(command)
        except Unreachable as error:
            self._drop_connection(message.connection, error)
            raise

    def _find_in_flight(self, offset: int) -> Received:
        at = offset - self._window.first
        message = self._window.messages[at] if 0 <= at < len(self._window.messages) else None
        if message is None or message.is_requeued or message.connection.broken:
            raise LocalError(
                f"message {offset} of topic {self.topic!r} is not with this consumer any more: it was finished or "
                "requeued, or the connection that gave it is closed; a message that was not finished comes again"
            )
        return message

    def _receive(self, wait_s: float) -> None:
        self._look()
        self._connect()
        connected = self._list_connections()
        if not connected:
            time.sleep(min(wait_s, PAUSE_S))
            return
        if self._is_overfull(len(connected)):
            self._beat(connected)
            return
        readable = select.select(connected, [], [], wait_s)[0]
        for connection in readable:
            try:
                connection.pump()
            except (Unreachable, MalformedMessage) as error:
                self._drop_connection(connection, error)
        for connection in connected:
            connection.drop_responses()
            self._collect_messages(connection)

    def _is_overfull(self, connections_count: int) -> bool:
        """Return whether no more messages should be read before some are finished.

        If a node goes away, others get its messages, and it sends them again after it is back: twice as many messages
        as were asked for are usual then.
        """
        window = self._window
        count = len(window.messages) - window.requeued_count
        return count >= 4 * self._in_flight + connections_count or window.size_bytes >= UNFINISHED_BYTES_MAX

    def _beat(self, connections: Sequence[NsqConnection]) -> None:
        """Send signs of life, since heartbeats are not read."""
        now = time.monotonic()
        if now < self._beat_at:
            return
        self._beat_at = now + BEAT_S
        for connection in connections:
            try:
                connection.send(write("NOP"))
            except Unreachable as error:
                self._drop_connection(connection, error)

    def _collect_messages(self, connection: NsqConnection) -> None:
        for data in connection.take_messages():
            self._window.append(_parse_message(data, connection))

    def _list_connections(self) -> list[NsqConnection]:
        return [one.connection for one in self._nodes.values() if one.connection and not one.connection.broken]

    def _look(self) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S * random.uniform(0.75, 1.25)
        try:
            found = self._discovery.of_topic(self.topic)
        except Unreachable:
            if not self._nodes:
                raise
            return
        if not found.nodes:
            # no node has it yet: ask again soon
            self._look_at = now + PAUSE_S
        for node in found.nodes:
            self._nodes.setdefault(node, _SubscribedNode(node))

    def _connect(self) -> None:
        now = time.monotonic()
        fresh = False
        for one in self._nodes.values():
            if (one.connection is None or one.connection.broken) and now >= one.again_at:
                try:
                    one.connection = self._subscribe_to(one.node)
                except (Unreachable, NsqRefusal, MalformedMessage) as error:
                    self._put_off(one, error)
                    continue
                if one.logged_away:
                    LOG.warning("nsqd at %s:%d is back; going on", *one.node)
                one.pause_s, one.error, one.logged_away = PAUSE_S, None, False
                fresh = True
        if fresh:
            self._distribute_ready()

    def _subscribe_to(self, node: NsqdAddress) -> NsqConnection:
        """Return a connection that reads the channel, with ext headers if server and topic support them."""
        connection = self._connect_to_node(node, self._identity)
        if connection.knows_ext and not connection.extend_support:
            connection.close()
            connection = self._connect_to_node(node, _with_ext(self._identity))
        try:
            connection.ask(write("SUB", self.topic, self.channel))
        except NsqRefusal as refusal:
            connection.close()
            if refusal.word != "E_SUB_EXTEND_FORBIDDON":
                raise
            connection = self._connect_to_node(node, self._identity)
            connection.ask(write("SUB", self.topic, self.channel))
        return connection

    def _connect_to_node(self, node: NsqdAddress, identity: IdentifyOptions) -> NsqConnection:
        return self._connect_to(node.host, node.port, identity)

    def _distribute_ready(self) -> None:
        """Give every node its part of what may be in flight."""
        connected = self._list_connections()
        for connection in connected:
            ready = max(1, min(self._in_flight // len(connected), connection.ready_max))
            try:
                connection.send(write("RDY", ready))
            except Unreachable as error:
                self._drop_connection(connection, error)

    def _drop_connection(self, connection: NsqConnection, error: LadingError) -> None:
        connection.close()
        for one in self._nodes.values():
            if one.connection is connection:
                one.connection = None
                self._put_off(one, error)
        self._look_at = 0.0

    def _put_off(self, one: _SubscribedNode, error: LadingError) -> None:
        if self._joined and not one.logged_away:
            LOG.warning("nsqd at %s:%d is away; waiting until it is back (%s)", *one.node, error)
            one.logged_away = True
        one.error = error
        one.again_at = time.monotonic() + one.pause_s * random.uniform(0.5, 1.0)
        one.pause_s = min(2 * one.pause_s, PAUSE_S_MAX)


def _with_ext(identity: IdentifyOptions) -> IdentifyOptions:
    return IdentifyOptions(True, identity.tag, identity.timeout_ms, identity.more)


def _parse_message(data: bytes, connection: NsqConnection) -> Received:
    """Return a message frame's data as it would be stored."""
    if len(data) < _HEAD.size:
        raise MalformedMessage(f"nsqd at {connection.place} sent a message of {len(data)} bytes")
    time_ns, attempts, message_id = _HEAD.unpack_from(data)
    version, ext, at = _NO_EXT, b"", _HEAD.size
    if connection.extend_support:
        version, at = data[at] if len(data) > at else _NO_EXT, at + 1
        if version != _NO_EXT:
            if len(data) < at + 2:
                raise MalformedMessage(f"nsqd at {connection.place} sent a message that ends in its ext")
            size = int.from_bytes(data[at : at + 2], "big")
            if len(data) < at + 2 + size:
                raise MalformedMessage(f"nsqd at {connection.place} sent a message that ends in its ext")
            ext, at = data[at + 2 : at + 2 + size], at + 2 + size
    return Received(record(time_ns, message_id, version, ext, data[at:]), connection, message_id, attempts, time_ns)


def run_of(messages: Sequence[Received], first: int) -> Run:
    """Return messages as one chunk whose first offset is ``first``."""
    region = np.frombuffer(b"".join(one.stored for one in messages), np.uint8)
    count = len(messages)
    return Run(CODE, region, np.array([[0, region.size, first, count, first + count - 1, 0, 0, 0]], np.int64))
