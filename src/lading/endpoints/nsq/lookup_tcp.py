"""nsqlookupd over TCP: other nodes say what they have (nsq.md 5.4)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import struct
from typing import Any, Final

from ...dialects.nsq import limits
from ...dialects.nsq.commands import partition_of
from ...dialects.nsq.errors import NsqProtocolError
from ..base.deadlines import Stage
from ..base.peer import TLS_HELLO, is_tls_hello, origin_of
from ..base.receive_budget import ReceiveBudget
from ..base.services import Services
from ..io.gate import Gate, Guarded
from . import lookup as lookups
from .fork import VERSION
from .lookup import NsqdProducer
from .node import of as node_of

log = logging.getLogger(__name__)

NAME: Final = "nsqlookupd_tcp"
MAGIC: Final = b"  V1"
MAGIC_TIMEOUT_S: Final = 3.0
SILENT_S: Final = 15.0
"""A node that says nothing for so long is gone (nsqd-ping-timeout)."""
PARTITIONS_MAX: Final = 255
_SIZE: Final = struct.Struct(">i")
_FACTS: Final = {"version": str, "tcp_port": int, "http_port": int, "broadcast_address": str}


class LookupTcp:
    """The endpoint."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lookup = lookups.of(services)
        self._node = node_of(services)
        self._settings = services.settings.endpoints.nsqlookupd_tcp
        self.gate = Gate(services, NAME, self._settings.connections_max)
        self._server: asyncio.Server | None = None
        self._peers: set[asyncio.Task[Any]] = set()

    async def start(self, listener: socket.socket) -> None:
        """Accept from now on."""
        self._server = await asyncio.start_server(self._serve, sock=listener, limit=limits.LINE_BYTES_MAX)

    async def stop(self) -> None:
        """Close; nodes register again elsewhere."""
        if self._server is not None:
            self._server.close()
        for task in list(self._peers):
            task.cancel()
        await asyncio.gather(*self._peers, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        address = writer.get_extra_info("peername")
        host = str(address[0]) if address else ""
        peer = _Peer(self, reader, writer, host)
        if not self.gate.admit(peer, host):
            peer.abort()
            return
        self._peers.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError, ValueError):
                await peer.talk()
        finally:
            self._peers.discard(task)
            self.gate.leave(peer)
            peer.forget()
            writer.close()

    def own(self) -> dict[str, Any]:
        """What a node is told of this one."""
        tcp, http = self._node.advertised_tcp(), self._node.advertised_http()
        return {
            "tcp_port": tcp.port if tcp else 0,
            "http_port": http.port if http else 0,
            "version": VERSION,
            "broadcast_address": tcp.host if tcp else "",
            "hostname": self._node.hostname,
        }

    def has_room(self, producer: NsqdProducer) -> bool:
        """Whether a node may register more; counts what is refused."""
        if self._lookup.has_room(producer, self._settings.registrations_max):
            return True
        self.gate.count_dropped("registrations_max")
        return False

    @property
    def receive(self) -> ReceiveBudget:
        """Memory for what nodes say of themselves."""
        return self._services.receive

    @property
    def registry(self) -> lookups.Lookup:
        """Where what nodes say is kept."""
        return self._lookup


class _Peer(Guarded):
    """One node that has connected."""

    def __init__(
        self, endpoint: LookupTcp, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str
    ) -> None:
        self._endpoint = endpoint
        self.gate = endpoint.gate
        self._reader, self._writer = reader, writer
        self._producer: NsqdProducer | None = None
        self._ended = False
        self._account = endpoint.receive.open(host, self.give_way)
        self._granted_bytes = 0
        """For a body that is arriving."""
        self._is_sending = False
        self._commands_count = 0

    # -- what the gate asks

    def stage(self) -> Stage:
        if self._is_sending:
            return Stage.BLOCKED
        if not self._commands_count:
            return Stage.FIRST
        # a node that sends nothing, or half a line, is cut after SILENT_S
        return Stage.PARTIAL if self._granted_bytes else Stage.BUSY

    def progress(self) -> int:
        return (self._commands_count << 40) + self._writer.transport.get_write_buffer_size()

    def unread(self) -> memoryview:
        # what a TLS client says first is longer than the magic, by which it is told
        return memoryview(b"")

    def origin(self) -> dict[str, str]:
        return origin_of(NAME, self._writer.transport)

    def abort(self) -> None:
        """Cut the connection now."""
        self._writer.transport.abort()

    def release_memory(self) -> None:
        self._account.give(self._granted_bytes)
        self._granted_bytes = 0

    # -- what it says

    def forget(self) -> None:
        """It is gone, with what it had."""
        if self._producer is not None:
            self._endpoint.registry.others.discard(self._producer)

    async def talk(self) -> None:
        """Answer until it says no more; every Fault is the last answer."""
        try:
            magic = await asyncio.wait_for(self._reader.readexactly(len(MAGIC)), MAGIC_TIMEOUT_S)
            if is_tls_hello(magic):
                log.info("closing the connection: %s", TLS_HELLO, extra=self.origin())
            if magic != MAGIC:
                raise NsqProtocolError("E_BAD_PROTOCOL")
            while line := await asyncio.wait_for(self._reader.readline(), SILENT_S):
                words = line.rstrip(b"\r\n").split(b" ")
                work = _COMMANDS.get(words[0])
                if work is None:
                    raise NsqProtocolError("E_INVALID", f"invalid command {words[0].decode(errors='replace')}")
                response = await getattr(self, work)(words[1:])
                if not self._commands_count:
                    self.gate.settle(self)
                self._commands_count += 1
                await self._send(response)
                # neither reading nor sending lets others have their turn while there is something to read
                await asyncio.sleep(0)
        except NsqProtocolError as fault:
            await self._send(str(fault).encode())
        except TimeoutError:
            self.gate.count_dropped("silent")

    async def _send(self, data: bytes) -> None:
        self._writer.write(_SIZE.pack(len(data)) + data)
        self._is_sending = True
        await self._writer.drain()
        self._is_sending = False

    async def _ping(self, words: list[bytes]) -> bytes:
        return b"OK"

    async def _identify(self, words: list[bytes]) -> bytes:
        if self._producer is not None:
            raise NsqProtocolError("E_INVALID", "cannot IDENTIFY again")
        (size,) = _SIZE.unpack(await asyncio.wait_for(self._reader.readexactly(_SIZE.size), SILENT_S))
        if not 0 < size <= limits.IDENTIFY_BYTES_MAX:
            raise NsqProtocolError("E_BAD_BODY", f"IDENTIFY invalid body size {size}")
        body = await self._receive_body(size)
        try:
            told = json.loads(body)
            if not isinstance(told, dict):
                raise ValueError("no object")
        except (ValueError, RecursionError):
            raise NsqProtocolError("E_BAD_BODY", "IDENTIFY failed to decode JSON body") from None
        for name, kind in _FACTS.items():
            if type(told.get(name)) is not kind or not told[name]:
                raise NsqProtocolError("E_BAD_BODY", "IDENTIFY missing fields")
        host, port = self._writer.get_extra_info("peername")[:2]
        told_host, told_id = told.get("hostname"), told.get("distributed_id")
        self._producer = NsqdProducer(
            f"{host}:{port}",
            told_host if isinstance(told_host, str) else "",
            told["broadcast_address"],
            told["tcp_port"],
            told["http_port"],
            told["version"],
            told_id if isinstance(told_id, str) else "",
        )
        self._endpoint.registry.others.add(self._producer)
        return json.dumps(self._endpoint.own(), separators=(",", ":")).encode()

    async def _receive_body(self, size_bytes: int) -> bytes:
        if not self._account.take(size_bytes):
            raise NsqProtocolError("E_BAD_BODY", "the broker is receiving too much; ask again later")
        self._granted_bytes = size_bytes
        try:
            return await asyncio.wait_for(self._reader.readexactly(size_bytes), SILENT_S)
        finally:
            self.release_memory()

    async def _register(self, words: list[bytes]) -> bytes:
        producer, topic, partition, channel = self._place(words, "REGISTER")
        if not self._endpoint.has_room(producer):
            # the node keeps what it has; to close the connection would only make it say everything again
            return f"E_INVALID REGISTER {topic}: too many registrations; see registrations_max".encode()
        producer.register(topic, partition, channel)
        return b"OK"

    async def _unregister(self, words: list[bytes]) -> bytes:
        producer, topic, partition, channel = self._place(words, "UNREGISTER")
        producer.unregister(topic, partition, channel)
        if topic not in producer.topics:
            self._endpoint.registry.remove_tombstone(topic, producer.http_address)
        return b"OK"

    def _place(self, words: list[bytes], verb: str) -> tuple[NsqdProducer, str, int, str]:
        """Topic, partition and channel; upstream's nodes name no partition."""
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


_COMMANDS: Final = {b"IDENTIFY": "_identify", b"REGISTER": "_register", b"UNREGISTER": "_unregister", b"PING": "_ping"}
