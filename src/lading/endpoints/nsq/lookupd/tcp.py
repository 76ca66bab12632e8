"""nsqlookupd over TCP: other nodes register their topics and channels (nsq.md 5.4)."""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from ....broker.core.access.principal import Principal
from ....broker.core.callbacks import ignore
from ....dialects.nsq import limits
from ....dialects.nsq.commands import partition_of
from ....dialects.nsq.errors import NsqProtocolError
from ....model.lazy_dataclass import lazy_dataclass
from ...base.deadlines import Stage
from ...base.inbox import no_progress_error
from ...base.peer import name_other_protocol
from ...base.services import Endpoint, Services
from ...base.session import ConnectionHandle, Peer, ProtocolSession, ReceiveResult, SessionLimits
from ...io.gate import Gate
from ...io.tcp import TcpServer
from ...io.tls import encrypt
from ..fork import VERSION
from ..nsqd.node import Node
from ..nsqd.node import of as node_of
from . import lookup as lookups
from .lookup import NsqdProducer

log = logging.getLogger(__name__)

NAME: Final = "nsqlookupd_tcp"
MAGIC: Final = b"  V1"
IDENTIFY: Final = b"IDENTIFY"
MAGIC_TIMEOUT_US: Final = 3_000_000
SILENT_US: Final = 15_000_000
"""A node that sends no command for this long is disconnected (nsqd-ping-timeout)."""
PARTITIONS_MAX: Final = 255
COMMANDS_PER_TURN: Final = 16
"""How many commands of a node are handled before others have their turn."""
_SIZE: Final = struct.Struct(">i")
_FACTS: Final = {"version": str, "tcp_port": int, "http_port": int, "broadcast_address": str}


@lazy_dataclass(frozen=True, slots=True)
class LookupHandlers:
    """The handlers of the commands of all nodes: they keep what nodes register."""

    lookup: lookups.Lookup
    node: Node
    registrations_max: int
    is_open: bool = False
    """Whether nodes may register even if users are set up: their protocol has no login."""

    def describe_own(self) -> dict[str, Any]:
        """Return the description of this lookup that a node receives."""
        tcp, http = self.node.tcp_address(), self.node.http_address()
        return {
            "tcp_port": tcp.port if tcp else 0,
            "http_port": http.port if http else 0,
            "version": VERSION,
            "broadcast_address": tcp.host if tcp else "",
            "hostname": self.node.hostname,
        }


class LookupSession(ProtocolSession):
    """One connected node. Its commands are handled one after the other; after any Fault the connection is closed."""

    limits = SessionLimits(unanswered_max=1, write_buffer_bytes=64 << 10)

    def __init__(self, handlers: LookupHandlers, connection: ConnectionHandle) -> None:
        super().__init__(connection)
        self._handlers = handlers
        self._host, self._port = "", 0
        self._principal: Principal | None = None
        self._cancel_revoked: Callable[[], None] = ignore
        self._has_greeted = False
        """Whether the node has sent the magic bytes of the protocol version."""
        self._producer: NsqdProducer | None = None
        self._awaits_body = False
        self._was_blocked = False
        """Whether the node has not read its responses since its last command."""

    # -- what the connection calls

    def begin(self, peer: Peer, now_us: int) -> bool:
        self._host, self._port = peer.host, peer.port
        self._wait_until(now_us + MAGIC_TIMEOUT_US)
        self._principal = self._handlers.node.broker.access.admit(is_open=self._handlers.is_open)
        if self._principal is None:
            self.connection.count_dropped("login_needed")
            return False
        self._cancel_revoked = self._principal.add_revoked_callback(self.connection.abort)
        return True

    def receive(self, now_us: int) -> ReceiveResult:
        inbox = self.inbox
        commands_left = COMMANDS_PER_TURN
        if self._was_blocked and not self.is_blocked:
            # the node's deadline begins once it has read its responses
            self._was_blocked = False
            self._wait_until(now_us + SILENT_US)
        result, begun = ReceiveResult.DONE, inbox.at
        while inbox.at < inbox.have and not self.is_ended:
            if self.is_blocked:
                result = ReceiveResult.WAIT
                break
            if not commands_left:
                result = ReceiveResult.TURN
                break
            commands_left -= 1
            at = inbox.at
            try:
                if not (self._take_command() if self._has_greeted else self._take_greeting()):
                    break
            except NsqProtocolError as fault:
                self._refuse(fault)
                break
            if inbox.at <= at and not self.is_ended:
                raise no_progress_error()
        if inbox.at != begun and not self.is_ended:
            # one timer at a time: a timer for each command costs as much as the command
            self._wait_until(now_us + SILENT_US)
        return result

    def refuse_memory(self) -> None:
        self._refuse(NsqProtocolError("E_BAD_BODY", "the broker is receiving too much; retry later"))

    def tick(self, now_us: int) -> int | None:
        if self.is_ended:
            return None
        if self.is_blocked:
            # a client that does not read has a deadline of its own
            return now_us + SILENT_US
        self.connection.count_dropped("silent")
        self.connection.close()
        return None

    def block(self, is_blocked: bool) -> None:
        super().block(is_blocked)
        self._was_blocked = True

    def end(self) -> None:
        # respond to all commands before the end, also to a last line without a line feed
        if self._has_greeted and not (self.is_ended or self.is_lost):
            self._take_rest()
        super().end()

    def lose(self) -> None:
        self._cancel_revoked()
        if self._producer is not None:
            self._handlers.lookup.remove(self._producer)

    def stage(self) -> Stage:
        if not self.requests_count:
            return Stage.FIRST
        # a node that sends nothing, or an incomplete line, is disconnected after SILENT_US
        return Stage.PARTIAL if self._awaits_body else Stage.BUSY

    def _wait_until(self, due_us: int) -> None:
        """Close the connection if the node sends nothing until that time."""
        self.connection.tick_at(due_us)

    # -- commands

    def _take_greeting(self) -> bool:
        inbox = self.inbox
        magic = bytes(inbox.unread[: len(MAGIC)])
        if len(magic) < len(MAGIC):
            return False
        if magic != MAGIC:
            # also nsqd's own, "  V2": from a producer or consumer that was configured with nsqlookupd's port
            if (other := name_other_protocol(inbox.unread)) is not None:
                log.info("closing the connection: %s", other, extra=self.connection.origin())
            raise NsqProtocolError("E_BAD_PROTOCOL")
        inbox.at += len(MAGIC)
        self._has_greeted = True
        return True

    def _take_command(self) -> bool:
        """Respond to one command; return False if it is incomplete."""
        inbox = self.inbox
        stop = inbox.data.find(b"\n", inbox.at, inbox.have)
        if (inbox.have if stop < 0 else stop) - inbox.at > limits.LINE_BYTES_MAX:
            # a peer that sends such lines is not a node, and would not understand a response
            self._end_input()
            return False
        if stop < 0:
            return False
        words = bytes(inbox.view[inbox.at : stop]).rstrip(b"\r").split(b" ")
        body, end = b"", stop + 1
        if words[0] == IDENTIFY:
            self._awaits_body = True
            if self._producer is not None:
                raise NsqProtocolError("E_INVALID", "cannot IDENTIFY again")
            if inbox.have - end < _SIZE.size:
                return False
            (size,) = _SIZE.unpack_from(inbox.view, end)
            if not 0 < size <= limits.IDENTIFY_BYTES_MAX:
                raise NsqProtocolError("E_BAD_BODY", f"IDENTIFY invalid body size {size}")
            start, end = end + _SIZE.size, end + _SIZE.size + size
            if inbox.have < end:
                return False
            self._awaits_body = False
            body = bytes(inbox.view[start:end])
        inbox.at = end
        self._answer(words, body)
        return True

    def _take_rest(self) -> None:
        """Respond to the commands received before the end of the stream, including a last line without a line feed."""
        inbox = self.inbox
        try:
            while self._take_command():
                pass
            words = bytes(inbox.unread).rstrip(b"\r").split(b" ")
            if not (self.is_ended or self._awaits_body) and words[0] not in (b"", IDENTIFY):
                self._answer(words, b"")
        except NsqProtocolError as fault:
            self._respond(str(fault).encode())

    def _answer(self, words: list[bytes], body: bytes) -> None:
        work = _COMMANDS.get(words[0])
        if work is None:
            raise NsqProtocolError("E_INVALID", f"invalid command {words[0].decode(errors='replace')}")
        response = work(self, words[1:], body)
        if not self.requests_count:
            self.connection.settle()
        self.requests_count += 1
        self._respond(response)

    def _respond(self, data: bytes) -> None:
        self.responses.add((_SIZE.pack(len(data)) + data,))

    def _refuse(self, fault: NsqProtocolError) -> None:
        self._respond(str(fault).encode())
        self._end_input()

    def _end_input(self) -> None:
        """Handle no more commands, not even those already received."""
        self.inbox.at = self.inbox.have
        super().end()

    def _answer_ping(self, words: list[bytes], body: bytes) -> bytes:
        return b"OK"

    def _identify(self, words: list[bytes], body: bytes) -> bytes:
        try:
            document = json.loads(body)
            if not isinstance(document, dict):
                raise ValueError("no object")
        except (ValueError, RecursionError):
            raise NsqProtocolError("E_BAD_BODY", "IDENTIFY failed to decode JSON body") from None
        for name, kind in _FACTS.items():
            if type(document.get(name)) is not kind or not document[name]:
                raise NsqProtocolError("E_BAD_BODY", "IDENTIFY missing fields")
        told_host, told_id = document.get("hostname"), document.get("distributed_id")
        self._producer = NsqdProducer(
            f"{self._host}:{self._port}",
            told_host if isinstance(told_host, str) else "",
            document["broadcast_address"],
            document["tcp_port"],
            document["http_port"],
            document["version"],
            told_id if isinstance(told_id, str) else "",
        )
        self._handlers.lookup.add(self._producer)
        return json.dumps(self._handlers.describe_own(), separators=(",", ":")).encode()

    def _register(self, words: list[bytes], body: bytes) -> bytes:
        producer, topic, partition, channel = self._parse_place(words, "REGISTER")
        if not self._handlers.lookup.has_room(producer, self._handlers.registrations_max):
            self.connection.count_dropped("registrations_max")
            # keep the connection: the node keeps its topics, and would only register everything again
            return f"E_INVALID REGISTER {topic}: too many registrations; see registrations_max".encode()
        producer.register(topic, partition, channel)
        return b"OK"

    def _unregister(self, words: list[bytes], body: bytes) -> bytes:
        producer, topic, partition, channel = self._parse_place(words, "UNREGISTER")
        producer.unregister(topic, partition, channel)
        if topic not in producer.topics:
            self._handlers.lookup.remove_tombstone(topic, producer.http_address)
        return b"OK"

    def _parse_place(self, words: list[bytes], verb: str) -> tuple[NsqdProducer, str, int, str]:
        """Return topic, partition and channel of a command; upstream's nodes name no partition."""
        if self._producer is None:
            raise NsqProtocolError("E_INVALID", "client must IDENTIFY")
        if not words:
            raise NsqProtocolError("E_INVALID", f"{verb} insufficient number of params")
        names = [word.decode(errors="replace") for word in words]
        partition, rest = 0, names[1:]
        if "HA" in self._producer.version:
            partition = partition_of(words[1]) if len(words) > 1 else 0
            rest = names[2:]
        channel = rest[0] if rest else ""
        if not limits.is_name(names[0]):
            raise NsqProtocolError("E_BAD_TOPIC", f"{verb} topic name '{names[0]}' is not valid")
        if channel and not limits.is_name(channel):
            raise NsqProtocolError("E_BAD_CHANNEL", f"{verb} channel name '{channel}' is not valid")
        if not 0 <= partition < PARTITIONS_MAX:
            raise NsqProtocolError("E_BAD_PARTITION", f"{verb} partition '{partition}' is not valid")
        return self._producer, names[0], partition, channel


_COMMANDS: Final[Mapping[bytes, Callable[[LookupSession, list[bytes], bytes], bytes]]] = {
    IDENTIFY: LookupSession._identify,
    b"REGISTER": LookupSession._register,
    b"UNREGISTER": LookupSession._unregister,
    b"PING": LookupSession._answer_ping,
}


def endpoint(services: Services, name: str) -> Endpoint:
    """Create the endpoint; called by ``serve``."""
    settings = services.settings.endpoints.nsqlookupd_tcp
    handlers = LookupHandlers(lookups.of(services), node_of(services), settings.registrations_max, settings.secured)
    gate = Gate(services, NAME)
    return TcpServer(services, NAME, gate, encrypt(services, NAME, settings, partial(LookupSession, handlers)))
