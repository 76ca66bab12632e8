"""One NSQ node: what its four endpoints share, from topics by their NSQ names to the timer of the channels."""

from __future__ import annotations

import asyncio
import logging
import platform
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from ....broker.channels import Channel, ChannelStart
from ....broker.core.access.rights import Resource, Right, flat_topic_resource
from ....broker.core.settings import TopicSettings
from ....broker.core.siblings import SiblingAddress
from ....dialects.nsq import limits, publishing
from ....dialects.nsq.errors import NsqProtocolError
from ....model.errors import LadingError, Reason, Refusal
from ....model.names import DEFAULT_STREAM
from ....settings.settings import Address
from ...base.append_wait import wait_for_result
from ...base.services import Services, now_us
from ...base.topic_creation import MISSING, find_or_create_topic
from ..fork import EXTENDED, YOUZAN, takes_ext

if TYPE_CHECKING:
    from ....broker.core.access.principal import Principal
    from ....broker.core.change import Change
    from ....broker.core.topology import Topic
    from ....dialects.nsq.commands import ClientState
    from ....dialects.nsq.identify import Features, Identity
    from .consume import NsqConsumer

log = logging.getLogger(__name__)


def _require_countable(partitions: int) -> None:
    if partitions > limits.PARTITIONS_MAX:
        raise Refusal(
            Reason.TOO_MANY_PARTITIONS,
            f"NSQ counts partitions up to {limits.PARTITIONS_MAX - 1}; create at most {limits.PARTITIONS_MAX}",
        )


DELETED_S: Final = 10.0
KERNELS_EVERY_S: Final = 0.05
"""Seconds between two checks whether kernels are loaded."""
PUMP_RETRY_US: Final = 1_000_000


class WorkNeeded(Exception):
    """Work has to be done before a command can be handled; ``make`` does it in the background."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, object]], message: str) -> None:
        super().__init__(message)
        self.make = make


class TopicNeeded(WorkNeeded):
    """A topic has to be created, or to get more partitions."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, object]]) -> None:
        super().__init__(make, "a topic is needed that does not exist yet")


class KernelsNeeded(WorkNeeded):
    """A long MPUB is stored once the compiled kernels are loaded."""

    def __init__(self) -> None:
        super().__init__(wait_for_kernels, "kernels are needed that are not loaded yet")


async def wait_for_kernels() -> None:
    """Wait until the kernels that store messages are loaded, or have failed to load."""
    while publishing.are_kernels_expected():
        await asyncio.sleep(KERNELS_EVERY_S)


class NodeClient(Protocol):
    """A client of nsqd, as its node and the statistics of ``/stats`` see it."""

    address: str
    connected_s: int
    identity: Identity
    features: Features
    state: ClientState
    consumer: NsqConsumer | None

    @property
    def published(self) -> Mapping[str, int]:
        """The number of messages that it published, by topic."""

    def require_subscription(self) -> None:
        """Deliver no more if the right to read was revoked."""

    def is_encrypted(self) -> bool:
        """Return whether the connection uses TLS."""

    def topic_upgraded(self, topic: Topic) -> None:
        """Note that readers of a topic must take the extended form from now on."""


class Node:
    """The node of one broker. ``of(services)`` gives the same one to every endpoint."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.broker = services.broker
        self.channels = services.broker.channels
        self.settings = services.settings.nsq
        self.strict = self.settings.compat == YOUZAN
        """Whether responses are the fork's, instead of upstream's, which refuse less."""
        self.started_s = int(time.time())
        self.hostname = platform.node()
        self.connections: set[NodeClient] = set()
        self.tcp: Address | None = None
        self.http: Address | None = None
        """Addresses on which the endpoints of nsqd listen."""
        self._pump_at: asyncio.TimerHandle | None = None
        self._pump_soon = False
        self._deleted: dict[tuple[str, str], float] = {}
        self._drops: set[asyncio.Task[None]] = set()
        self._creation_error: LadingError | None = None
        """Why the topic could not be created for the waiting command, which is being handled again."""
        self.channels.on_work = self.pump_soon
        self.channels.on_unused = self._drop
        self.broker.access.add_changed_callback(self._on_rights_changed)
        self.broker.siblings.find_own = self._find_address

    def _on_rights_changed(self) -> None:
        for connection in list(self.connections):
            connection.require_subscription()

    # -- delivering

    def pump_soon(self) -> None:
        """Deliver at the end of this pass of the event loop."""
        if not self._pump_soon:
            self._pump_soon = True
            asyncio.get_running_loop().call_soon(self.pump)

    def pump(self) -> None:
        """Deliver what can be delivered, and set the timer for the next time."""
        self._pump_soon = False
        now = now_us()
        due_us: int | None = now + PUMP_RETRY_US
        try:
            due_us = self.channels.pump(now)
        except Exception:
            log.exception("delivering failed; it is tried again")
        if self._pump_at is not None:
            self._pump_at.cancel()
            self._pump_at = None
        if due_us is not None:
            self._pump_at = asyncio.get_running_loop().call_later(max(due_us - now, 0) / 1e6, self.pump)

    # -- topics and channels by their NSQ names

    def resource_of(self, name: str) -> Resource:
        """Return the resource of a topic for checks of rights, whether or not it exists."""
        return flat_topic_resource(self.broker.topology, name)

    def require_creation(self, principal: Principal | None, name: str) -> None:
        """Raise Refusal if a topic is missing that reading would create, and the user may not create it."""
        access, resource = self.broker.access, self.resource_of(name)
        # publishing creates topics too
        if not access.allows(principal, Right.WRITE, resource) and not self.exists(name):
            access.require(principal, Right.CREATE, resource)

    def is_smaller(self, name: str, partitions: int) -> bool:
        """Return whether a topic of this name exists with fewer than ``partitions``."""
        return self.exists(name) and len(self.find(name).partitions) < partitions

    def exists(self, name: str) -> bool:
        """Return whether there is a topic of this name."""
        try:
            self.find(name)
        except Refusal:
            return False
        return True

    def topics(self) -> Iterator[Topic]:
        """Return the topics whose names NSQ can express, by name."""
        found = (one for one in self.broker.topology.topics() if limits.is_name(one.flat_name))
        yield from sorted(found, key=lambda one: one.flat_name)

    def find(self, name: str) -> Topic:
        """Return the topic. Raises Refusal if it does not exist."""
        if not limits.is_name(name):
            raise Refusal(
                Reason.TOPIC_NAME_NOT_FOUND,
                f"{name!r} is not a topic name; use 1 to {limits.NAME_BYTES_MAX} of the characters . a-z A-Z 0-9 _ -",
            )
        return self.broker.topology.resolve(name)

    def require_name(self, command: str, name: str) -> None:
        """Raise NsqProtocolError, in upstream's words, for an invalid topic name; the fork reports such a topic as
        missing.
        """
        if not limits.is_name(name) and not self.strict:
            # for MPUB the code is there twice, as in upstream
            text = "E_BAD_TOPIC MPUB" if command == "MPUB" else command
            raise NsqProtocolError("E_BAD_TOPIC", f'{text} topic name "{name}" is not valid')

    def publishable(self, name: str, partition: int) -> Topic:
        """Return the topic that a client publishes to. Raises TopicNeeded if it is missing, a Fault if it may not be
        created.

        ``partition`` -1 stands for any. The fork's server creates no topics, and reports one with an invalid name as
        missing.
        """
        self.require_name("PUB", name)
        try:
            topic = self.find(name)
        except Refusal as refusal:
            if self.strict or refusal.reason not in MISSING:
                raise NsqProtocolError("E_TOPIC_NOT_EXIST") from None
            raise self.need(lambda: self.create(name)) from None
        if partition >= len(topic.partitions) or not topic.partitions:
            raise NsqProtocolError("E_TOPIC_NOT_EXIST")
        return topic

    def need(self, make: Callable[[], Coroutine[Any, Any, object]]) -> Exception:
        """Return the error for a command whose topic is missing: TopicNeeded, or why it could not be created."""
        error, self._creation_error = self._creation_error, None
        return error or TopicNeeded(make)

    def retry(self, proceed: Callable[[], None], error: LadingError | None) -> None:
        """Have a command handled again after its wait; ``error`` says why its topic could not be created."""
        self._creation_error = error
        try:
            proceed()
        finally:
            # a client that is not being read now comes back later
            self._creation_error = None

    def create_at_once(self, name: str) -> Topic:
        """Create a topic at once, while other clients wait, for accepted messages whose topic was deleted meanwhile."""
        return self.broker.at_once.create_topic_in_stream(DEFAULT_STREAM, name, 1, now_us())

    async def create(self, name: str, partitions: int = 1, form: str | None = None) -> Topic:
        """Return the topic, created in stream ``default`` if it is missing; ``form`` is that of
        TopicSettings.header_form.
        """
        return await find_or_create_topic(self.services, name, partitions, TopicSettings(header_form=form))

    def require_partitions(self, name: str, partitions: int, form: str | None) -> Topic:
        """Return the topic if it has this many partitions; only a new one gets the form.

        Raises TopicNeeded if it is missing or has fewer, Refusal if that number is not allowed.
        """
        _require_countable(partitions)
        try:
            topic = self.find(name)
        except Refusal as refusal:
            if refusal.reason not in MISSING:
                raise
            raise self.need(lambda: self.create(name, partitions, form)) from None
        if partitions > len(topic.partitions):
            raise self.need(lambda: self._grow(topic, partitions))
        return topic

    async def _grow(self, topic: Topic, partitions: int) -> None:
        """Add partitions up to this number; queued changes may have added some before."""

        def grow() -> Change[None]:
            missing = partitions - len(topic.partitions)
            if missing > 0:
                yield from self.broker.changes.add_partitions(topic, missing)

        await self.services.changes.make_in_turn(topic, grow())

    async def declare(self, name: str, partitions: int | None, form: str | None, principal: Principal | None) -> Topic:
        """Return the topic of exactly this metadata, created if it does not exist; None means any.

        A topic that leaves the form to its readers, such as one created by PUB, matches both forms, and becomes
        extended if that is requested. Raises Refusal TOPIC_NAME_EXISTS, and changes nothing, if the metadata differs.
        """
        _require_countable(partitions or 1)
        topic = await self.create(name, partitions or 1, form)
        fixed = topic.settings.header_form
        if partitions not in (None, len(topic.partitions)) or (fixed and form not in (None, fixed)):
            raise Refusal(
                Reason.TOPIC_NAME_EXISTS,
                f"topic {name!r}: already exists with {len(topic.partitions)} partitions and "
                f"{'with' if takes_ext(topic) else 'without'} extend support; ask for the same, or update it",
            )
        if form == EXTENDED and fixed is None:
            self.broker.access.require(principal, Right.ALTER_CONFIGS, self.resource_of(name))
            await self.upgrade(topic)
        return topic

    async def upgrade(self, topic: Topic) -> None:
        """Allow only the extended form from now on; readers of the plain form get an error and are disconnected."""
        extended = replace(topic.settings, header_form=EXTENDED)
        await self.services.changes.make_in_turn(topic, self.broker.changes.alter_topic(topic, extended))
        for connection in list(self.connections):
            connection.topic_upgraded(topic)

    def open_channel(self, topic: Topic, name: str) -> Channel:
        """Return the channel, created if it does not exist. Raises WorkNeeded if creating it would delay others."""
        start = ChannelStart.END if self.strict else ChannelStart.KEPT
        change = self.channels.prepare(topic, name, start)
        if change is not None:
            raise self.need(lambda: self.services.changes.make_in_turn(topic, change))
        return self.channels.open(topic, name, start=start)

    async def create_channel(self, topic: Topic, name: str) -> None:
        """Create the channel if it does not exist."""
        try:
            self.open_channel(topic, name)
        except WorkNeeded as needed:
            await needed.make()

    def find_channel(self, topic: Topic, name: str) -> Channel | None:
        """Return the channel, or None if it does not exist."""
        return self.channels.find(topic, name)

    async def confirm_channels(self) -> None:
        """Wait until the store has the last changes of channels and topics. Raises Refusal."""
        for pending in self.channels.take_unconfirmed():
            await wait_for_result(pending)

    async def delete(self, topic: Topic) -> None:
        """Delete the topic with its channels; their clients are disconnected."""
        await self.services.changes.make_in_turn(topic, self.broker.changes.delete_topic(topic))

    def record_deletion(self, topic: str, channel: str = "") -> None:
        """Record a deletion through the lookup: tools repeat it at nsqd, since upstream's lookup only forgets."""
        now_s = time.monotonic()
        self._deleted = {key: until_s for key, until_s in self._deleted.items() if until_s > now_s}
        self._deleted[topic, channel] = now_s + DELETED_S

    def was_deleted(self, topic: str, channel: str = "") -> bool:
        """Return whether a topic was deleted through the lookup a moment ago; True only once for each deletion."""
        return self._deleted.pop((topic, channel), 0.0) > time.monotonic()

    def forget_ephemeral(self) -> None:
        """Delete the ephemeral topics without a channel at the start of the broker: no client uses them."""
        for topic in list(self.topics()):
            self._delete_unused(topic)

    def _drop(self, topic: Topic) -> None:
        drop = asyncio.ensure_future(self._drop_in_turn(topic))
        # a task without a reference may be collected before it is done
        self._drops.add(drop)
        drop.add_done_callback(self._drops.discard)

    async def _drop_in_turn(self, topic: Topic) -> None:
        def drop() -> Change[None]:
            # by the turn of this change the topic may be in use again, or deleted
            if self._is_unused(topic) and self.broker.topology.topic_by_uuid(topic.uuid) is topic:
                yield from self.broker.changes.delete_topic(topic)

        try:
            await self.services.changes.make_in_turn(topic, drop())
        except LadingError as error:
            log.warning("topic %r, which is no longer used, could not be deleted: %s", topic.name, error)

    def _delete_unused(self, topic: Topic) -> None:
        if self._is_unused(topic):
            self.broker.at_once.delete_topic(topic.stream.id, topic.id)

    def _is_unused(self, topic: Topic) -> bool:
        return topic.name.endswith(limits.EPHEMERAL) and not self.channels.of_topic(topic)

    # -- addresses for clients

    def tcp_address(self) -> Address | None:
        """Return the TCP address of nsqd for clients of lookups, or None if that endpoint is off."""
        return self.services.settings.endpoints.nsqd_tcp.advertised or self.tcp

    def _find_address(self) -> SiblingAddress | None:
        tcp, http = self.tcp_address(), self.http_address()
        if self.tcp is None or tcp is None:
            return None
        return SiblingAddress(self.hostname, tcp.host, tcp.port, http.port if http is not None else 0)

    def http_address(self) -> Address | None:
        """Return the HTTP address of nsqd for clients of lookups, or None if that endpoint is off."""
        return self.services.settings.endpoints.nsqd_http.advertised or self.http


def of(services: Services) -> Node:
    """Return the node of this process's services; the same one each time."""
    node: Node = services.shared.setdefault(Node, None) or Node(services)
    services.shared[Node] = node
    return node
