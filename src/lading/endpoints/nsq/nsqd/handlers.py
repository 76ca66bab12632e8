"""Handlers of nsqd's commands, except those that publish: one function for each (nsq.md 1.4)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from ....broker.core.access.rights import Right
from ....dialects.nsq import commands, identify, limits
from ....dialects.nsq.commands import COMMANDS, ClientState, Command, Line
from ....dialects.nsq.errors import EXT_FORBIDDEN, EXT_NEEDED, NsqProtocolError
from ....model.errors import LadingError
from ....model.lazy_dataclass import lazy_dataclass
from ...base.peer import name_other_protocol
from ...base.services import Services
from ...io.compression import CompressedSession
from ..fork import EXTENDED, PLAIN, VERSION
from .consume import NsqConsumer
from .lent_publications import LentPublications
from .login import NO_RULES, LoginRules, NsqdLogin
from .node import Node
from .publish import Publisher
from .publish_coalescing import PublishCoalescer
from .subscribe import parse_subscribe

if TYPE_CHECKING:
    from ....dialects.nsq.identify import Features, Identity
    from ...base.inbox import Inbox
    from ...base.responses import ResponseQueue
    from ...base.session import ConnectionHandle
    from .message_flow import MessageFlow

log = logging.getLogger(__name__)
NEED_AUTH: Final = frozenset(
    {command.name for command in COMMANDS.values() if command.form is not None}
    | {"SUB", "SUB_ADVANCED", "SUB_ORDERED", "INTERNAL_CREATE_TOPIC"}
)


@lazy_dataclass(frozen=True, slots=True)
class NsqdHandlers:
    """State shared by all clients of nsqd."""

    services: Services
    node: Node
    publisher: Publisher
    gathering: PublishCoalescer
    login_rules: LoginRules = NO_RULES
    lent: LentPublications | None = None
    """The handler of lent sockets for nsqd; None if its clients do not lend sockets."""


class CommandContext(Protocol):
    """The client of a command, with what the handlers of commands need of it."""

    services: Services
    node: Node
    inbox: Inbox
    responses: ResponseQueue
    name: str
    identity: Identity
    features: Features
    state: ClientState
    consumer: NsqConsumer | None
    login: NsqdLogin
    flow: MessageFlow
    connection: ConnectionHandle

    def log_in(self, secret: str) -> None:
        """Check the secret that AUTH sent."""

    def respond(self, data: bytes) -> None:
        """Send this response, after the earlier ones."""

    def beat_later(self) -> None:
        """Send heartbeats in the interval that the client asked for."""

    def channel_closed(self, reason: str) -> None:
        """Close the connection, because its channel was deleted."""


Handler = Callable[[CommandContext, Line, bytes], None]


def require_state(connection: CommandContext, command: Command) -> None:
    """Raise Fault if a command is not allowed in the client's state, or does not exist in the fork."""
    if connection.login.needs_tls and command.name != "IDENTIFY":
        raise NsqProtocolError("E_INVALID", f"cannot {command.name} in current state (TLS required)")
    if connection.login.needs_auth and command.name in NEED_AUTH:
        raise NsqProtocolError("E_AUTH_FIRST", f"AUTH required before {command.name}")
    if connection.state not in command.states:
        verb = "SUB" if command.leads_to is ClientState.SUBSCRIBED else command.name
        raise NsqProtocolError("E_INVALID", f"cannot {verb} in current state")
    if command.name == "DPUB" and connection.node.strict:
        inbox = connection.inbox
        data = bytes(inbox.view[inbox.at : inbox.have]).split(b"\n")[0]
        shown = " ".join("[" + " ".join(map(str, word)) + "]" for word in data.split(b" "))
        raise NsqProtocolError("E_INVALID", f"invalid command [{shown}]")


def take_magic(inbox: Inbox, connection: ConnectionHandle) -> bool:
    """Take the first bytes of a client, which name its protocol; return False if some are missing."""
    end = inbox.at + len(commands.MAGIC)
    if inbox.have < end:
        return False
    if bytes(inbox.view[inbox.at : end]) != commands.MAGIC:
        if (other := name_other_protocol(inbox.view[inbox.at : inbox.have])) is not None:
            log.info("closing the connection: %s", other, extra=connection.origin())
        raise NsqProtocolError("E_BAD_PROTOCOL")
    inbox.at = end
    return True


def take_body(inbox: Inbox, line: Line) -> bytes | None:
    """Take a command's line and body; return None if some of it is missing."""
    size = commands.read_size(inbox.view, line.end, inbox.have)
    if size is None:
        return None
    if size <= 0:
        raise NsqProtocolError("E_BAD_BODY", f"{line.command.name} invalid body size {size}")
    if size > limits.REQUEST_BYTES_MAX:
        text = f"{line.command.name} body too big {size} > {limits.REQUEST_BYTES_MAX}"
        raise NsqProtocolError("E_BAD_BODY", text)
    if size > limits.IDENTIFY_BYTES_MAX:
        raise NsqProtocolError("E_BAD_BODY", f"{line.command.name} invalid body size {size}")
    start = line.end + 4
    if start + size > inbox.have:
        return None
    inbox.at = start + size
    return bytes(inbox.view[start : inbox.at])


def _identify(connection: CommandContext, line: Line, body: bytes) -> None:
    identity = identify.parse(body)
    section = connection.services.settings.endpoints.nsqd_tcp
    # only the first such request counts, as for TLS
    is_plain = not (connection.features.deflate or connection.features.snappy)
    offers = identify.Offers(
        tls=connection.login.offers_tls,
        deflate=section.deflate and is_plain,
        snappy=section.snappy and is_plain,
        deflate_level_max=section.deflate_level_max,
        forked=connection.node.strict,
    )
    connection.identity = identity
    features = identify.negotiate(identity, offers)
    connection.respond(
        identify.answer(
            identity,
            version=VERSION,
            features=features,
            deflate_level_max=section.deflate_level_max,
            auth=connection.login.needs_auth,
        )
    )
    # in this order, each with a response of its own in the new encoding
    if features.tls:
        connection.login.start_tls(connection.responses)
        connection.respond(commands.OK)
    if features.deflate or features.snappy:
        start_compression(connection.connection, connection.responses, features)
        connection.features = features
        connection.respond(commands.OK)
    connection.beat_later()


def _auth(connection: CommandContext, line: Line, body: bytes) -> None:
    if not connection.node.broker.access.is_enabled:
        raise NsqProtocolError("E_AUTH_DISABLED", "AUTH Disabled" if connection.node.strict else "AUTH disabled")
    connection.log_in(body.decode(errors="replace"))


def _nop(connection: CommandContext, line: Line, body: bytes) -> None:
    pass


def _sub(connection: CommandContext, line: Line, body: bytes) -> None:
    """Subscribe, with the checks in the order of the server's (nsq.md 1.8, 4.3)."""
    name = line.command.name
    if connection.identity.heartbeat_ms < 0:
        raise NsqProtocolError("E_INVALID", "cannot SUB with heartbeats disabled")
    topic_name = line.parameters[0].decode(errors="replace")
    connection.login.require_right(name, Right.READ, topic_name)
    connection.login.require_creation(name, topic_name)
    asked = parse_subscribe(connection.node, line)
    form = asked.topic.settings.header_form
    extends = connection.identity.extend_support
    if form == EXTENDED and not extends:
        raise NsqProtocolError("E_SUB_EXTEND_NEED", EXT_NEEDED)
    if form == PLAIN and extends:
        raise NsqProtocolError("E_SUB_EXTEND_FORBIDDON", EXT_FORBIDDEN)
    if name == "SUB_ORDERED" and connection.identity.sample_rate:
        raise NsqProtocolError("E_INVALID", "order consume is not allowed while sample rate is not 0")
    channel = connection.node.open_channel(asked.topic, asked.channel)
    connection.consumer = NsqConsumer(
        connection.services,
        channel,
        connection.identity,
        connection.connection,
        connection.flow.deliver,
        connection.channel_closed,
        with_ext=extends,
        detail=name != "SUB",
        name=connection.name,
    )
    connection.flow.start(connection.consumer.subscriber)
    asked.move(channel)
    channel.subscribe(connection.consumer.subscriber, asked.partition, ordered=name == "SUB_ORDERED")
    connection.respond(commands.OK)


def _rdy(connection: CommandContext, line: Line, body: bytes) -> None:
    text = line.parameters[0] if line.parameters else b"1"
    ready = commands.digits_of(text)
    if ready is None:
        raise NsqProtocolError("E_INVALID", f"RDY could not parse count {text.decode(errors='replace')}")
    if ready > limits.READY_MAX:
        raise NsqProtocolError("E_INVALID", f"RDY count {ready} out of range 0-{limits.READY_MAX}")
    if connection.state is ClientState.SUBSCRIBED and connection.consumer is not None:
        connection.consumer.subscriber.set_ready(ready)


def _fin(connection: CommandContext, line: Line, body: bytes) -> None:
    """Finish one message whose FIN command was not part of a run."""
    assert connection.consumer is not None
    plain = np.frombuffer(b"FIN " + line.message_id + b"\n", np.uint8)
    for fault in connection.consumer.finish(plain, 0, plain.size)[1]:
        raise fault


def _req(connection: CommandContext, line: Line, body: bytes) -> None:
    assert connection.consumer is not None
    delay_ms = commands.digits_of(line.parameters[0])
    if delay_ms is None:
        raise NsqProtocolError(
            "E_INVALID", f"REQ could not parse timeout {line.parameters[0].decode(errors='replace')}"
        )
    connection.consumer.requeue(line.message_id, delay_ms)


def _touch(connection: CommandContext, line: Line, body: bytes) -> None:
    assert connection.consumer is not None
    connection.consumer.touch(line.message_id)


def _cls(connection: CommandContext, line: Line, body: bytes) -> None:
    assert connection.consumer is not None
    connection.consumer.subscriber.set_ready(0)
    connection.respond(commands.CLOSE_WAIT)


def _internal_create_topic(connection: CommandContext, line: Line, body: bytes) -> None:
    name = line.parameters[0].decode(errors="replace")
    if not limits.is_name(name):
        raise NsqProtocolError("E_BAD_TOPIC", f'topic name "{name}" is not valid')
    connection.login.require_right("CREATE_TOPIC", Right.CREATE, name)
    partition = commands.partition_of(line.parameters[1])
    if partition < 0:
        raise NsqProtocolError("E_BAD_PARTITION", "partition should not less than 0")
    if connection.node.is_smaller(name, partition + 1):
        connection.login.require_right("CREATE_TOPIC", Right.ALTER, name)
    extended = len(line.parameters) > 2 and commands.bool_of(line.parameters[2])
    try:
        connection.node.require_partitions(name, partition + 1, EXTENDED if extended else PLAIN)
    except LadingError:
        raise NsqProtocolError("E_CREATE_TOPIC_FAILED", f"CREATE_TOPIC {name} failed") from None
    connection.respond(commands.OK)


HANDLERS: Final[Mapping[str, Handler]] = {
    "IDENTIFY": _identify,
    "AUTH": _auth,
    "NOP": _nop,
    "SUB": _sub,
    "SUB_ADVANCED": _sub,
    "SUB_ORDERED": _sub,
    "RDY": _rdy,
    "FIN": _fin,
    "REQ": _req,
    "TOUCH": _touch,
    "CLS": _cls,
    "INTERNAL_CREATE_TOPIC": _internal_create_topic,
}
"""The handler of each command, except publications, which ``PublicationReader`` takes."""

assert HANDLERS.keys() == {command.name for command in COMMANDS.values() if command.form is None}


def start_compression(connection: ConnectionHandle, responses: ResponseQueue, features: Features) -> None:
    """Compress everything after the last response, in both directions (nsq.md 1.5).

    Raises NsqProtocolError if that is impossible now.
    """
    # imported late: most clients do not compress, and the broker starts sooner
    from ....dialects.nsq import compression

    if not responses.is_empty:
        raise NsqProtocolError("E_INVALID", "cannot IDENTIFY with compression before publications are answered")
    if not connection.inbox.hold_elsewhere(compression.STREAM_BYTES):
        raise NsqProtocolError("E_IDENTIFY_FAILED", "no memory for a compressed connection; retry later")
    layer = (
        partial(CompressedSession, compression.SnappyReader(), compression.SnappyWriter())
        if features.snappy
        else partial(CompressedSession, compression.DeflateReader(), compression.DeflateWriter(features.deflate_level))
    )
    connection.insert_layer(partial(layer, compression.STREAM_BYTES))
