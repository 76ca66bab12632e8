"""NSQ as a transport: publishing, and reading as a member of a channel. NSQ is a queue: there is nothing to seek in."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from ...dialects.nsq import limits
from ...dialects.nsq.commands import read_trace_answer, write
from ...dialects.nsq.ext import trace_of
from ...dialects.nsq.protocol import SENT
from ...model.errors import LocalError, RemoteError, SettingError, Unreachable
from ...model.names import DEFAULT_STREAM
from ..client_tls import parse_tls
from ..fetched import FetchResult
from ..fitting import fill_missing_columns, fit_to_target
from ..interface import Membership, PartitionMeta, SendResult, TopicMeta, TraceReceipt
from ..open import address
from ..secrets import read_secret
from ..topics import UnknownTopic
from .compressed import parse_compression
from .connection import IdentifyOptions, NsqConnection, NsqRefusal
from .lookup import Discovery, NsqdAddress
from .queue import NsqQueue
from .sizes import LENGTH_THAT_NO_SERVER_TAKES, parse_bound

if TYPE_CHECKING:
    import pyarrow as pa

    from ...model.protocol import MessageBound

log = logging.getLogger(__name__)

REQUEST_MESSAGES_MAX: Final = 1000
REQUEST_BYTES_WANTED: Final = 1 << 20
BOUND_TOLD_S: Final = 2.0
"""An nsqd refuses a length at once; a server that takes any would wait for two gigabytes."""
_NAMES: Final = "NSQ has 1 to 64 letters, digits, '.', '_' and '-', then perhaps #ephemeral"
_WHO_EXTENDS: Final = "use Youzan's NSQ or Lading's endpoint, or lading://"
EXTENDED_S: Final = 2.0
"""A topic that was created or upgraded is extended everywhere after this time, or the server has no such topics."""
_NO_SUCH_PATH: Final = 404
_NO_TOPIC: Final = "TOPIC_NOT_FOUND"
_MISSING: Final = "E_TOPIC_NOT_EXIST"
_EXT_COMMANDS: Final = (b"MPUB_EXT", b"PUB_EXT")
_TRACE_MARK: Final = limits.TRACE_NAME.encode()
_SIZE_BYTES: Final = 4
"""The length in front of a message of MPUB_EXT, which PUB_EXT has once."""
_NO_EXT_THERE: Final = frozenset({"E_EXT_NOT_SUPPORT", "E_INVALID"})


class NsqTransport:
    """One nsqd, or all nsqd that an nsqlookupd knows (``nsq://host:4161``).

    ``tag`` asks for the messages with that tag, ``in_flight`` bounds the unfinished messages in this process,
    ``message_timeout_s`` is how long this process may keep a message before another reader gets it. ``tls`` changes to
    TLS (tls_v1), with ``ca_file`` (a file of certificates to trust besides the system's), ``certificate_file`` and
    ``key_file`` (presented to nodes); an nsqlookupd is asked over HTTPS then, or over HTTP if it has no TLS.
    ``auth_secret`` or ``auth_secret_file`` is for nodes that require one. ``connection_compression`` (``snappy``,
    ``deflate``, or ``deflate:1`` to ``deflate:9``) compresses both directions of connections to nodes that offer it.
    """

    idempotent = False
    capabilities = SENT

    def __init__(
        self,
        url: str,
        *,
        tag: str = "",
        in_flight: int = limits.READY_MAX,
        message_timeout_s: float | None = None,
        timeout_s: float = 30.0,
        retries: int = 6,
        tls: bool | str | None = None,
        ca_file: str | None = None,
        certificate_file: str | None = None,
        key_file: str | None = None,
        auth_secret: str | None = None,
        auth_secret_file: str | None = None,
        connection_compression: str | None = None,
    ) -> None:
        host, port = address(url, "nsq")
        for name, value in (("timeout_s", timeout_s), ("in_flight", in_flight)):
            if value <= 0:
                raise SettingError(f"{name} is above 0, not {value!r}")
        if len(tag.encode()) > limits.TAG_BYTES_MAX:
            raise SettingError(f"a tag has at most {limits.TAG_BYTES_MAX} bytes, not {len(tag.encode())}")
        self.url = url
        self._retries = retries
        self._in_flight = in_flight
        self._identity = IdentifyOptions(tag=tag, timeout_ms=int((message_timeout_s or 0) * 1000))
        encryption = parse_tls(tls, ca_file, certificate_file, key_file)
        secret = read_secret("auth_secret", auth_secret, auth_secret_file)
        self._connect = partial(
            NsqConnection,
            timeout_s=timeout_s,
            tls=encryption,
            auth_secret=secret,
            compression=parse_compression(connection_compression),
        )
        self._discovery = Discovery(host, port, timeout_s=timeout_s, tls=encryption)
        self._publisher: NsqConnection | None = None
        self._queues: dict[str, NsqQueue] = {}

    # -- topics

    def topics(self, wanted: Callable[[str], bool] | None = None) -> list[TopicMeta]:
        """Return all topics that the nsqlookupd knows, or those wanted.

        Raises LocalError if the URL names an nsqd, which cannot say.
        """
        names = self._discovery.topics()
        if names is None:
            raise LocalError(f"{self.url} is an nsqd, which does not list topics; give an nsqlookupd's URL")
        return [self._describe_topic(name) for name in names if wanted is None or wanted(name)]

    def topic(self, name: str) -> TopicMeta:
        """Return the topic as one partition; its offsets number what was received.

        Only nsqd finds out whether it exists.
        """
        self._require_topic_name(name)
        return self._describe_topic(name)

    def _require_topic_name(self, name: str) -> None:
        if not limits.is_name(name):
            raise UnknownTopic(
                f"topic {name!r}: {self.url} cannot have a topic of this name ({_NAMES}); use "
                f"{limits.nearest_name(name)!r}, or another protocol, such as lading:// or kafka://"
            )

    def _describe_topic(self, name: str) -> TopicMeta:
        queue = self._queues.get(name)
        part = PartitionMeta(0, 0, 0) if queue is None else PartitionMeta(0, 0, queue.end)
        return TopicMeta(DEFAULT_STREAM, name, name, None, (part,))

    def create_topic(self, name: str, partitions: int = 1) -> TopicMeta:
        """Create a topic with ext headers if the servers can; on others the first message creates it."""
        meta = self.topic(name)
        if self._discovery.lookup() and self._discovery.create(name, partitions):
            return meta
        if self._connect_publisher(name).knows_ext:
            self._retry_command(name, write("INTERNAL_CREATE_TOPIC", name, 0, "true"))
        return meta

    def create_extended_topic(self, name: str, partitions: int = 1) -> TopicMeta:
        """Create a topic whose messages have ext headers. Raises LocalError if the server is not one that has such."""
        meta = self.topic(name)
        if self._discovery.lookup():
            self._discovery.create_extended(name, partitions)
            self._require_extended(name)
        elif self._connect_publisher(name).knows_ext:
            self._retry_command(name, write("INTERNAL_CREATE_TOPIC", name, 0, "true"))
        else:
            raise LocalError(f"topic {name!r}: {self.url} has no extended topics; {_WHO_EXTENDS}")
        return meta

    def extend_topic(self, name: str) -> None:
        """Make a plain topic an extended one, for good; its readers of the plain form are disconnected."""
        self._require_topic_name(name)
        if not self._discovery.lookup():
            raise LocalError(
                f"topic {name!r}: {self.url} is an nsqd, which extends no topic; give the nsqlookupd's URL"
            )
        try:
            self._discovery.extend(name)
        except RemoteError as error:
            if error.code != _NO_SUCH_PATH or _NO_TOPIC in str(error):
                raise
            raise LocalError(f"topic {name!r}: {self.url} has no extended topics; {_WHO_EXTENDS}") from None
        self._require_extended(name)

    def _require_extended(self, name: str) -> None:
        """Wait until the nsqlookupd says that a topic is extended: its nodes learn it a moment later."""
        until = time.monotonic() + EXTENDED_S
        while not (is_extended := self._discovery.of_topic(name).ext) and time.monotonic() < until:
            time.sleep(0.05)
        if not is_extended:
            raise LocalError(f"topic {name!r}: {self.url} does not say that it is extended; {_WHO_EXTENDS}")

    # -- reading

    def join(self, group: str, topics: Sequence[str]) -> Membership:
        """Become a reader of channel ``group`` of one topic."""
        if len(topics) != 1:
            raise LocalError(f"a channel belongs to one topic; create a consumer for each of {', '.join(topics)}")
        if not limits.is_name(group):
            raise LocalError(
                f"channel {group!r}: {self.url} cannot have a channel of this name ({_NAMES}); "
                f"use {limits.nearest_name(group)!r}"
            )
        (topic,) = topics
        self._require_topic_name(topic)
        queue = self._queues[topic] = NsqQueue(
            self._discovery, self._connect, topic, group, self._identity, in_flight=self._in_flight
        )
        return queue

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 1 << 20,
        max_messages: int | None = None,
        wait_ms: int = 0,
    ) -> FetchResult:
        """Return what the channel gave, by number of arrival. Raises LocalError without a channel."""
        queue = self._queues.get(topic)
        if queue is None:
            raise LocalError(
                f"{self.url} is a queue: reading consumes its messages, for a channel. Name one, as in "
                f'Consumer("{self.url}", "{topic}", channel="name") or lading message poll {topic} --group name; or '
                "copy them into a directory that can be read repeatedly: "
                f"lading spool {self.url} {topic} DIRECTORY"
            )
        return queue.fetch(offset, max_messages=max_messages, wait_ms=wait_ms)

    def offset_at(self, topic: str, partition: int, timestamp_us: int) -> int:
        """Raise LocalError: a queue has no times to go to."""
        raise LocalError(f"{self.url} is a queue; reading cannot start at a time; a channel continues where it was")

    # -- sending

    def takes_headers(self, topic: str) -> bool:
        """Return whether the nsqd is of the fork or ours, and the topic not fixed to the plain form."""
        return self._connect_publisher(topic).knows_ext and self._discovery.of_topic(topic).ext is not False

    def message_bound(self, topic: str) -> MessageBound | None:
        """Return what the nsqd takes, if that is less than NSQ's usual megabyte.

        No command asks for it. A message of two gigabytes is refused by its length, with the bound and before the topic
        is made or anything of it is waited for.
        """
        connection = self._connect_publisher(topic)
        try:
            question = write("PUB", topic) + LENGTH_THAT_NO_SERVER_TAKES.to_bytes(4, "big")
            connection.ask(question, timeout_s=BOUND_TOLD_S)
        except NsqRefusal as refusal:
            return parse_bound(str(refusal))
        except Unreachable as error:
            # a server that takes any length waits for the rest, another one closes without a word: then the bound shows
            # only in its responses to messages
            log.debug("nsqd at %s does not tell what a message may have: %s", connection.place, error)
        finally:
            self._forget()
        return None

    def send(
        self,
        topic: str,
        partition: int | None,
        batch: pa.RecordBatch,
        *,
        strict: bool = False,
        compression: Literal["lz4"] | None = None,
    ) -> SendResult:
        """Publish by MPUB_EXT, messages without headers by MPUB; at least once when it has to be repeated.

        Messages with a ``##trace_id`` go alone, by PUB_EXT: only its response is a receipt.
        """
        from ...dialects.nsq.encode import batch_body, exts_and_bodies, item

        self._require_topic_name(topic)
        pairs = exts_and_bodies(fit_to_target(fill_missing_columns(batch), self.capabilities, "NSQ", strict=strict))
        plain = not any(ext for ext, _ in pairs)
        command = "MPUB" if plain else "MPUB_EXT"
        traces: dict[int, TraceReceipt] = {}
        waiting: list[bytes] = []

        def publish_waiting() -> None:
            for items in _split_requests(waiting):
                self._publish(topic, write(command, topic, body=batch_body(items)))
            waiting.clear()

        for row, (ext, body) in enumerate(pairs):
            if plain:
                waiting.append(_plain_item(body))
            elif _TRACE_MARK in ext and trace_of(ext)[1] is not None:
                publish_waiting()
                size_and_message = item(ext, body)
                receipt = read_trace_answer(
                    self._publish(topic, write("PUB_EXT", topic, body=size_and_message[_SIZE_BYTES:]))
                )
                if receipt is not None:
                    traces[row] = TraceReceipt(*receipt)
            else:
                waiting.append(item(ext, body))
        publish_waiting()
        return SendResult(batch.num_rows, traces=traces or None)

    def _publish(self, topic: str, command: bytes) -> bytes:
        """Return the response to a publication. It creates the topic, also on servers that leave that to clients."""
        try:
            try:
                return self._retry_command(topic, command)
            except NsqRefusal as refusal:
                if refusal.word != _MISSING:
                    raise
                self.create_topic(topic)
                return self._retry_command(topic, command)
        except NsqRefusal as refusal:
            if refusal.word in _NO_EXT_THERE and command.startswith(_EXT_COMMANDS):
                raise LocalError(
                    f"topic {topic!r} at {self.url} accepts no headers ({refusal}); make it an ext topic, "
                    "or send messages without headers, key and time"
                ) from None
            raise

    def _retry_command(self, topic: str, command: bytes) -> bytes:
        """Send until the server responds: it hangs up on a publisher that was idle for some heartbeats."""
        for left in range(self._retries, -1, -1):
            try:
                return self._connect_publisher(topic).ask(command)
            except NsqRefusal:
                # most refusals of publications end the connection
                self._forget()
                raise
            except Unreachable:
                self._forget()
                if not left:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _connect_publisher(self, topic: str) -> NsqConnection:
        if self._publisher is None or self._publisher.broken:
            nodes = self._discovery.of_topic(topic).nodes or self._discovery.all()
            if not nodes:
                raise Unreachable(f"the nsqlookupd at {self.url} knows no nsqd; start one and let it register")
            self._publisher = self._connect_to_first(nodes)
        return self._publisher

    def _connect_to_first(self, nodes: Sequence[NsqdAddress]) -> NsqConnection:
        """Return a connection to the first node that responds."""
        failure: Unreachable | None = None
        for node in nodes:
            try:
                return self._connect(node.host, node.port, IdentifyOptions())
            except Unreachable as error:
                failure = error
        assert failure is not None
        raise failure

    def _forget(self) -> None:
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None

    def close(self) -> None:
        """Close all connections."""
        self._forget()
        for queue in self._queues.values():
            queue.leave()


def _plain_item(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def _split_requests(items: Sequence[bytes]) -> list[list[bytes]]:
    """Items in order, cut to what one MPUB may hold."""
    found: list[list[bytes]] = []
    size_bytes = 0
    for one in items:
        full = found and (len(found[-1]) >= REQUEST_MESSAGES_MAX or size_bytes + len(one) > REQUEST_BYTES_WANTED)
        if not found or full:
            found.append([])
            size_bytes = 0
        found[-1].append(one)
        size_bytes += len(one)
    return found
