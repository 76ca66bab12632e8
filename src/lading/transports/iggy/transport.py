"""``iggy://``: the client side of Iggy's TCP protocol, classic generation; a real server or Lading's own endpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

from ...dialects.iggy.classic import commands as c
from ...dialects.iggy.classic.primitives import (
    ConsumerIdentifier,
    ConsumerKind,
    PollingKind,
    Strategy,
)
from ...dialects.iggy.classic.responses import PartitionInfo, TopicDetails, TopicInfo
from ...model.errors import ChecksumMismatch, Reason, Refusal
from ...model.names import flat_name, spellings
from ..client_tls import parse_tls
from ..fetched import FetchResult
from ..interface import PartitionMeta, SendResult, TopicMeta
from ..secrets import read_secret
from ..topics import split_new_name, unknown_topic_error
from .addresses import check_name, find_free_id, split_url
from .group import IggyMembership, StreamTopic
from .polled import Polled, parse_poll_response
from .server_release import facts_sent_to, find_release
from .socket import AnswerTooLarge, IggyRefusal, IggySocket, ReleaseChanged
from .states import IggyStates
from .streams import ID_TRIES, IggyStreams

if TYPE_CHECKING:
    import pyarrow as pa

    from ...dialects.iggy.classic.releases import Release
    from ...model.protocol import Capabilities
    from ...model.state import State

POLL_MESSAGES_MAX: Final = 100_000
MESSAGE_BYTES_GUESS: Final = 1_000
"""Assumed size of a message until some messages of its topic are known."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.002, 0.05
_READER: Final = ConsumerIdentifier(ConsumerKind.CONSUMER, 0)
_LATER_READER: Final = ConsumerIdentifier(ConsumerKind.CONSUMER, 1)
"""The consumer of reads: servers after 0.0.40 refuse consumer 0. Nothing is stored for this one."""
_NOT_FOUND: Final = (
    Reason.STREAM_ID_NOT_FOUND,
    Reason.STREAM_NAME_NOT_FOUND,
    Reason.TOPIC_ID_NOT_FOUND,
    Reason.TOPIC_NAME_NOT_FOUND,
)
_EXISTS: Final = (Reason.TOPIC_ID_EXISTS, Reason.TOPIC_NAME_EXISTS)


@lru_cache(65_536)
def _partition_of_key(release: Release, key: bytes, partitions: int) -> int:
    return release.partition_of_key(key, partitions) - 1


class IggyTransport:
    """One Iggy server; ``iggy://host:port/stream`` looks for plain topic names in that stream first.

    Options: ``timeout_s`` one response may take; ``retries`` of requests that may be repeated (not sends: the server
    cannot recognize a repeated one); ``keeps_order=False`` for a server that shuffles headers, as the real one of the
    generation does: their order then travels by carrier for messages with two or more; ``release`` of the server, such
    as "0.9", which is determined otherwise, except that 0.0.30 must be given; ``username`` with ``password`` or
    ``password_file`` for servers that require a login; ``tls``, with ``ca_file`` (a file of certificates to trust
    besides the system's), ``certificate_file`` and ``key_file`` (the client's own certificate).
    """

    idempotent = False

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 30.0,
        retries: int = 6,
        keeps_order: bool = True,
        release: str | None = None,
        username: str = "iggy",
        password: str | None = None,
        password_file: str | None = None,
        tls: bool | str | None = None,
        ca_file: str | None = None,
        certificate_file: str | None = None,
        key_file: str | None = None,
    ) -> None:
        self.url = url
        host, port, self._stream = split_url(url)
        self._host, self._port, self._timeout_s, self._retries = host, port, timeout_s, retries
        self._release = None if release is None else find_release(release)
        self._user = username, read_secret("password", password, password_file) or "iggy"
        self._tls = parse_tls(tls, ca_file, certificate_file, key_file)
        self._socket = self._make_socket()
        self._streams = IggyStreams(self._socket)
        self._states = IggyStates(url, self._socket, self._place_of, self.topic)
        self._keeps_order = keeps_order
        self._places: dict[str, StreamTopic] = {}
        self._message_bytes: dict[str, int] = {}
        self._first: dict[tuple[str, int], int] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._unfinished: tuple[Any, str, int | None, int] | None = None

    @property
    def capabilities(self) -> Capabilities:
        """Facts that a sent message keeps: those of the server's release, of 0.0.40 until that is known."""
        return facts_sent_to(self._socket.release, keeps_order=self._keeps_order)

    # topics

    def topics(self, wanted: Callable[[str], bool] | None = None) -> list[TopicMeta]:
        """Return all topics with their partitions; if the URL names a stream, only the topics of it.

        With ``wanted`` only those whose flat name is wanted, as each takes a request.
        """
        found: list[TopicMeta | None] = []
        for stream in self._streams.list_all():
            if self._stream in (None, stream.name):
                topics: Sequence[TopicInfo] = self._socket.ask(c.GetTopics(stream.name))
                # a listed topic may have been deleted by now
                found += [
                    self._find((stream.name, topic.name))
                    for topic in topics
                    if wanted is None or wanted(flat_name(stream.name, topic.name))
                ]
        return [meta for meta in found if meta is not None]

    def topic(self, name: str) -> TopicMeta:
        """Return the topic as it is now. Raises LocalError with similar names if it does not exist."""
        for place in self._list_candidates(name):
            if not all(1 <= len(part.encode()) <= 255 for part in place):
                continue
            if (meta := self._find(place)) is not None:
                self._places[name] = self._places[meta.name] = place
                return meta
        self._places.pop(name, None)
        raise unknown_topic_error(name, (meta.name for meta in self.topics()), self.url)

    def create_topic(self, name: str, partitions: int = 1) -> TopicMeta:
        """Create ``stream.topic`` and its stream; a plain name is created in the URL's stream, else in ``default``.

        Raises Refusal TOPIC_NAME_EXISTS if it exists, LocalError for a name that Iggy would store as another one.
        """
        stream, topic = split_new_name(name)
        if self._stream is not None and "." not in name:
            stream = self._stream
        for part in (stream, topic):
            check_name(part)
        self.create_stream(stream, exist_ok=True)
        for _ in range(ID_TRIES):
            taken: Sequence[TopicInfo] = self._socket.ask(c.GetTopics(stream))
            free = find_free_id({info.id for info in taken})
            try:
                self._socket.ask(c.CreateTopic(stream, free, partitions, topic), again=False)
            except IggyRefusal as refusal:
                if refusal.reason is Reason.TOPIC_ID_EXISTS:
                    continue
                if refusal.reason in _EXISTS:
                    raise Refusal(
                        Reason.TOPIC_NAME_EXISTS, f"topic {name!r} exists at {self.url}; choose another name"
                    ) from None
                raise
            break
        return self.topic(flat_name(stream, topic))

    def delete_topic(self, name: str) -> None:
        """Delete the topic with all its messages."""
        self._socket.ask(c.DeleteTopic(*self._place_of(name)), again=False)
        self._places.clear()

    def streams(self) -> list[dict[str, Any]]:
        """Return the ``id``, ``name``, number of ``topics``, ``size_bytes`` and ``messages`` of each stream."""
        return self._streams.describe()

    def create_stream(self, name: str, stream_id: int | None = None, *, exist_ok: bool = False) -> None:
        """Create a stream; its id is the next free one unless given."""
        self._streams.create(name, stream_id, exist_ok=exist_ok)

    def delete_stream(self, name: str) -> None:
        """Delete the stream with all its topics."""
        self._streams.delete(name)
        self._places.clear()

    # reading

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
        """Return messages from ``offset`` on: about as many as make ``max_bytes``, by the size of the topic's messages.

        The server cannot wait for messages: with ``wait_ms`` requests are repeated, at most twenty times a second.
        """
        deadline = time.monotonic() + wait_ms / 1000
        pause_s = FIRST_WAIT_S
        while True:
            answer = self._poll_sized(topic, partition, offset, max_bytes, max_messages)
            left_s = deadline - time.monotonic()
            if answer.count or left_s <= 0:
                break
            time.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, LONGEST_WAIT_S)
        where = (topic, partition)
        if not answer.count:
            return FetchResult(topic, partition, [], offset, self._first.get(where, 0), self._ends.get(where, offset))
        if answer.first > offset:
            # a gap: messages before the first kept one were deleted
            self._first[where] = self._poll_one(topic, partition, Strategy(PollingKind.FIRST)).first
        end = answer.last + 1
        self._ends[where] = max(self._ends.get(where, 0), end)
        return FetchResult(topic, partition, [answer.run], end, self._first.get(where, 0), self._ends[where])

    def offset_at(self, topic: str, partition: int, timestamp_us: int) -> int:
        """Return the first offset whose timestamp is at or after ``timestamp_us``, or the end offset.

        The real server finds nothing for times before its first message (iggy.md M9), so the ends are read first, and
        single messages by bisection if it still finds nothing.
        """
        first = self._poll_one(topic, partition, Strategy(PollingKind.FIRST))
        if not first.count:
            return self.topic(topic).partitions[partition].end_offset
        if timestamp_us <= first.first_timestamp_us:
            return first.first
        last = self._poll_one(topic, partition, Strategy(PollingKind.LAST))
        if timestamp_us > last.first_timestamp_us:
            return last.last + 1
        found = self._poll_one(topic, partition, Strategy(PollingKind.TIMESTAMP, timestamp_us))
        if found.count:
            return found.first
        low, high = first.first, last.last
        while low < high:
            middle = (low + high) // 2
            if self._poll_one(topic, partition, Strategy(PollingKind.OFFSET, middle)).first_timestamp_us < timestamp_us:
                low = middle + 1
            else:
                high = middle
        return low

    # writing

    def send(
        self,
        topic: str,
        partition: int | None,
        batch: pa.RecordBatch,
        *,
        strict: bool = False,
        compression: Literal["lz4"] | None = None,
    ) -> SendResult:
        """Send in requests within the server's limits, in order; the server does not report offsets.

        If the connection breaks, the outcome of the present request is unknown, and it is not repeated here. Sending
        the same batch object again continues after the requests that were confirmed. Iggy does not compress.
        """
        from ..fitting import fill_missing_columns, fit_to_target
        from .sending import encode_send, requests

        place = self._place_of(topic)
        done = 0
        if self._unfinished is not None:
            same = self._unfinished[0] is batch and self._unfinished[1:3] == (topic, partition)
            done = self._unfinished[3] if same else 0
        self._unfinished = None
        try:
            while done < batch.num_rows:
                release = self._socket.release
                rest = fit_to_target(fill_missing_columns(batch.slice(done)), self.capabilities, "Iggy", strict=strict)
                # the remaining messages are encoded for the release that the server has now
                with suppress(ReleaseChanged):
                    for part in requests(rest, release):
                        frame = encode_send(release, place, partition, part)
                        self._socket.request_frame("message.send", frame, release, again=False)
                        done += part.num_rows
        except BaseException as error:
            self._unfinished = (batch, topic, partition, done)
            error.add_note(f"{done} of {batch.num_rows} messages for topic {topic!r} were confirmed before")
            raise
        return SendResult(batch.num_rows)

    def partition_of_key(self, key: bytes, partitions: int) -> int:
        """Return the partition, counted from 0, that clients of the server's release choose for a key."""
        return _partition_of_key(self._socket.release, key, partitions)

    # states, on Lading's own server

    def states(
        self, topic: str, partition: int, *, first: int = 0, end: int | None = None
    ) -> list[tuple[int, int, State]]:
        """Return ranges (first, end, state) of messages that are not available. Raises LocalError at an Iggy server."""
        return self._states.list_ranges(topic, partition, first, end)

    def put_states(self, topic: str, document: dict[str, Any], partition: int | None = None) -> dict[str, Any]:
        """Set states in one partition, or in all, and return the response (docs/reference/http-states).

        Raises LocalError if the server is Iggy's own, which keeps no states.
        """
        return self._states.put(topic, document, partition)

    def state_counts(self, topic: str) -> list[dict[str, Any]]:
        """Return for each ``partition`` its offsets and ``states``: word -> number of messages. Raises LocalError at an
        Iggy server.
        """
        return self._states.count(topic)

    # groups

    def join(self, group: str, topics: Sequence[str]) -> IggyMembership:
        """Become a member of the group over a connection of its own; see ``iggy.group``."""
        places = {self.topic(name).name: self._place_of(name) for name in topics}
        return IggyMembership(self._make_socket(), group, places)

    def ping(self) -> None:
        """Check that the server responds."""
        self._socket.ask(c.Ping())

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _make_socket(self) -> IggySocket:
        return IggySocket(
            self._host,
            self._port,
            timeout_s=self._timeout_s,
            retries=self._retries,
            release=self._release,
            user=self._user,
            tls=self._tls,
        )

    def _list_candidates(self, name: str) -> list[StreamTopic]:
        known = [self._places[name]] if name in self._places else []
        return [*known, *([(self._stream, name)] if self._stream is not None else []), *spellings(name)]

    def _place_of(self, name: str) -> StreamTopic:
        if name not in self._places:
            self.topic(name)
        return self._places[name]

    def _find(self, place: StreamTopic) -> TopicMeta | None:
        try:
            return self._describe_topic(place)
        except IggyRefusal as refusal:
            if refusal.reason not in _NOT_FOUND:
                raise
            return None

    def _describe_topic(self, place: StreamTopic) -> TopicMeta:
        details: TopicDetails = self._socket.ask(c.GetTopic(*place))
        name = flat_name(*place)
        self._places.setdefault(name, place)
        if details.topic.messages_count:
            weight = details.topic.size_bytes // details.topic.messages_count
            self._message_bytes.setdefault(name, max(weight, 1))
        partitions = tuple(self._describe_partition(name, info) for info in details.partitions)
        return TopicMeta(*place, name, None, partitions)

    def _describe_partition(self, name: str, info: PartitionInfo) -> PartitionMeta:
        """Return the bounds of a partition.

        The current offset is 0 with one message and also without any, so the count decides. Fewer messages than offsets
        mean that the first ones were deleted.
        """
        where = (name, info.id - 1)
        end = info.current_offset + 1 if info.messages_count or info.current_offset else 0
        first = end
        if info.messages_count == end:
            first = 0
        elif info.messages_count:
            first = self._poll_one(name, info.id - 1, Strategy(PollingKind.FIRST)).first
            first = end if first < 0 else first
        self._first[where], self._ends[where] = first, max(end, self._ends.get(where, 0))
        return PartitionMeta(info.id - 1, first, end, size_bytes=info.size_bytes)

    def _poll_one(self, topic: str, partition: int, strategy: Strategy) -> Polled:
        return self._poll(topic, partition, strategy, 1)

    def _poll(self, topic: str, partition: int, strategy: Strategy, count: int) -> Polled:
        place = self._place_of(topic)
        for _ in range(2):
            body = self._socket.request(
                lambda release: c.PollMessages(
                    _LATER_READER if release.has_names else _READER, *place, partition + 1, strategy, count, False
                ),
                again=True,
            )
            polled = parse_poll_response(body, self._socket.release)
            if polled.damaged is None:
                return polled
        raise ChecksumMismatch(
            f"topic {topic!r}, partition {partition}, offset {polled.damaged}: the message does not match its "
            "checksum, also when it was asked for again"
        )

    def _poll_sized(self, topic: str, partition: int, offset: int, max_bytes: int, max_messages: int | None) -> Polled:
        """Poll about ``max_bytes``; fewer messages if the response would be larger than a client accepts."""
        weight = self._message_bytes.get(topic, MESSAGE_BYTES_GUESS)
        count = max(1, min(max_bytes // weight, max_messages or POLL_MESSAGES_MAX, POLL_MESSAGES_MAX))
        while True:
            try:
                answer = self._poll(topic, partition, Strategy(PollingKind.OFFSET, offset), count)
            except AnswerTooLarge:
                if count == 1:
                    raise
                count = max(1, count // 16)
                continue
            if answer.count:
                self._message_bytes[topic] = max(1, answer.size_bytes // answer.count)
            return answer
