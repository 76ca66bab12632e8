"""Sends and polls over HTTP: what a client of the release sends and gets over a connection, as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa

from ....broker.core.access.rights import Right
from ....broker.core.read import ReadResult
from ....dialects.iggy.classic import commands as c
from ....dialects.iggy.classic.encode import encode_sent
from ....dialects.iggy.classic.primitives import IDENTIFIER, PARTITIONING, U32, Identifier
from ....dialects.iggy.classic.releases import MessageForm
from ....dialects.iggy.current.capabilities import POLLED as CURRENT_POLLED
from ....dialects.iggy.current.codecs import Deferral, to_wire
from ....dialects.iggy.current.encode import encode_sent as encode_current
from ....dialects.iggy.current.operations import encode_send
from ....dialects.iggy.http.framed_messages import encode_framed, list_batches, list_zero_copy
from ....dialects.iggy.http.messages import SendDocument, encode_polled, parse_send
from ....dialects.iggy.http.release_answers import context_document
from ....dialects.iggy.http.releases import JsonRelease, MessagesForm
from ....dialects.iggy.zero_copy.encode import encode_sent as encode_zero_copy
from ....model.batch import SCHEMA
from ....model.errors import LimitExceeded, MalformedMessage, Reason, Refusal
from ....model.state import State
from ...base.append_wait import wait_acknowledged
from ...base.carrying import Carrying, Fit
from ...base.loaded_read import read_when_loaded
from ...base.services import Services, now_us
from ..answers import PolledPlace, batch_of
from ..clients import Client
from ..current.poll import encode_polled as encode_batches
from ..current.send import CurrentSender
from ..current.waiting import require_minimum, wait_for_messages
from ..handlers import FORMS
from ..poll import Poller, partition_of
from ..rights import requirement_of
from ..send import Sender, choice_of
from ..zero_copy import ZeroCopyPoller, ZeroCopySender

if TYPE_CHECKING:
    from ....broker.core.topology import Partition
    from ....settings.endpoints import IggyHttpListener

INLINE_BYTES_MAX: Final = 16 << 10
"""JSON longer than this is read and written in a worker, not in the event loop."""
_POLLED_HEAD_PARTS: Final = 1
"""Head of the batches in a response."""


class SentMessages(NamedTuple):
    """Partition and offsets of the messages of a send, counted as clients of the current generation do."""

    stream_id: int
    topic_id: int
    partition_id: int
    base_offset: int


Found = tuple[ReadResult, Fit] | None
"""The messages that a poll has read, and the function that fits them to the client's dialect."""
Rendered = tuple[bytes, int]
"""The document of a poll, and how many stubs are in it."""


class HttpMessages:
    """Sends and polls messages of one release; one for all its clients of a listener."""

    def __init__(self, services: Services, name: str, settings: IggyHttpListener, release: JsonRelease) -> None:
        self._services = services
        self._broker = services.broker
        self._name = name
        self._release = release
        # forms whose JSON has a state show it, even if the same release does not show it over a connection
        is_listed = release.messages in (MessagesForm.LISTED, MessagesForm.PLACED)
        handlers = FORMS[MessageForm.CLASSIC if is_listed else release.release.form]
        self._sender: Sender = handlers.sender(services, name, release.release)
        self._current = CurrentSender(services, name)
        self._poller: Poller = handlers.poller(services, name, settings, release.release)
        self._carrying = Carrying(services, name, CURRENT_POLLED, default=settings.carrier)

    async def send(self, client: Client, stream: Identifier, topic: Identifier, body: bytes) -> SentMessages | None:
        """Append the messages of a body, and wait until they are durable. Return their place for a current client.

        Numbers in ``stream`` and ``topic`` are the broker's. After a BodyError, Refusal or MalformedMessage nothing is
        appended.
        """
        self._require(client, stream, topic, Right.WRITE)
        encode = _ENCODERS[self._release.messages]
        document, sent = await self._services.run_in_worker(
            len(body), INLINE_BYTES_MAX, partial(_parse_and_encode, self._release, encode), body
        )
        partitioning = document.partitioning
        if self._release.is_current:
            payload = memoryview(encode_send(stream, topic, partitioning, document.batch.num_rows, sent))
            append, partition = self._current.send(payload, np.frombuffer(payload, np.uint8), 0, None, now_us())
            await wait_acknowledged(append)
            owner = partition.topic
            place = to_wire(owner.stream.id), to_wire(owner.id), partition.number
            return SentMessages(*place, append.base_offset)
        if isinstance(self._sender, ZeroCopySender):
            where = IDENTIFIER.write(stream) + IDENTIFIER.write(topic) + PARTITIONING.write(partitioning)
            head = U32.write(len(where) + 4) + where + U32.write(document.batch.num_rows)
            payload = memoryview(head + sent)
            append = self._sender.send(payload, np.frombuffer(payload, np.uint8), 0, None, now_us())
        else:
            found = self._broker.topology.topic(stream, topic)
            choice = choice_of(partitioning, self._release.release)
            source = np.frombuffer(sent, np.uint8)
            append = self._sender.append(found, choice, source, 0, len(sent), now_us())
        await wait_acknowledged(append)
        return None

    def _require(self, client: Client, stream: Identifier, topic: Identifier, right: Right) -> None:
        """Raise Refusal unless the client has the right on the topic, whether or not that exists."""
        require = requirement_of(self._broker, client.principal)
        if require is not None:
            require(stream, topic, right)

    async def poll(self, client: Client, command: c.PollMessages, states: frozenset[State] | None) -> bytes:
        """Return the document of the response to a poll; raises Refusal."""
        self._require(client, command.stream, command.topic, Right.READ)
        found = await read_when_loaded(lambda: self._poller.read(command, None, now_us(), states))
        return await self._render_polled(self._find_partition(command), found)

    async def poll_deferred(self, client: Client, command: c.PollMessages, deferral: Deferral) -> bytes:
        """Return the document of the response to a poll that may wait for messages; raises Refusal."""
        if not self._release.is_current:
            raise Refusal(Reason.FEATURE_UNAVAILABLE, "a poll of this release cannot wait; poll again later")
        self._require(client, command.stream, command.topic, Right.READ)
        require_minimum(deferral.count_min, command.count)
        partition = self._find_partition(command)

        async def try_now() -> Found:
            return self._poller.read(command, None, now_us(), bytes_max=deferral.bytes_max)

        found = await wait_for_messages(self._services, [partition], deferral.wait_us, try_now, _has_messages)
        return await self._render_polled(partition, found)

    def _find_partition(self, command: c.PollMessages) -> Partition:
        return self._broker.topology.topic(command.stream, command.topic).partition(partition_of(command))

    async def _render_polled(self, partition: Partition, found: Found) -> bytes:
        if found is None or not found[0].pieces:
            return self._render_nothing(partition)
        reading, fit = found
        if self._release.is_current:
            fit = self._carrying.fit(partition.topic)
        render = partial(_RENDERERS[self._release.messages], self, partition, fit)
        document, stubs = await self._services.run_in_worker(reading.size_bytes, INLINE_BYTES_MAX, render, reading)
        if stubs:
            self._services.metrics.dropped.values[self._name, "unholdable"] += stubs
        return document

    def _place_of(self, partition: Partition) -> PolledPlace:
        last = max(partition.log.high_watermark - 1, 0)
        return PolledPlace(partition.number + self._release.release.first_partition, last)

    def _render_nothing(self, partition: Partition) -> bytes:
        form, place = self._release.messages, self._place_of(partition)
        if form in (MessagesForm.LISTED, MessagesForm.PLACED):
            return encode_polled(pa.RecordBatch.from_pylist([], schema=SCHEMA), self._place_shown(place))
        return encode_framed(*place, [], typed=True, reserved=True, context=self._context_of(partition))

    def _context_of(self, partition: Partition) -> dict[str, int] | None:
        return context_document(partition.topic.created_us) if self._release.is_current else None

    def _place_shown(self, place: PolledPlace) -> PolledPlace | None:
        return None if self._release.messages is MessagesForm.LISTED else place

    def _render_listed(self, partition: Partition, fit: Fit, reading: ReadResult) -> Rendered:
        batch, stubs = batch_of(reading, fit)
        return encode_polled(batch, self._place_shown(self._place_of(partition))), stubs

    def _render_headed(self, partition: Partition, fit: Fit, reading: ReadResult) -> Rendered:
        assert isinstance(self._poller, ZeroCopyPoller)
        answer = self._poller.render(reading, self._place_of(partition), fit)
        messages = list(list_zero_copy(memoryview(b"".join(answer.parts)), self._poller.form))
        typed = self._release.messages is MessagesForm.TYPED
        return encode_framed(*self._place_of(partition), messages, typed=typed, reserved=typed), answer.stubs

    def _render_batches(self, partition: Partition, fit: Fit, reading: ReadResult) -> Rendered:
        answer = encode_batches(partition, reading, fit)
        messages = list(list_batches(memoryview(b"".join(answer.parts[_POLLED_HEAD_PARTS:]))))
        place, context = self._place_of(partition), self._context_of(partition)
        return encode_framed(*place, messages, typed=True, reserved=True, context=context), answer.stubs


def _has_messages(found: Found) -> bool:
    return found is not None and bool(found[0].pieces)


_RENDERERS: Final[Mapping[MessagesForm, Callable[[HttpMessages, Partition, Fit, ReadResult], Rendered]]] = {
    MessagesForm.LISTED: HttpMessages._render_listed,
    MessagesForm.PLACED: HttpMessages._render_listed,
    MessagesForm.HEADED: HttpMessages._render_headed,
    MessagesForm.TYPED: HttpMessages._render_headed,
    MessagesForm.BATCHED: HttpMessages._render_batches,
}
"""The function that makes the document of a poll, by release."""


def _draw_missing_ids(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with a random id for each message that has none.

    Over a connection clients of the current generation draw ids themselves, and batches are stored as they are sent.
    """
    ids = [uuid4().bytes if ident is None else ident for ident in batch.column("id").to_pylist()]
    at = batch.schema.get_field_index("id")
    return batch.set_column(at, batch.schema.field(at), pa.array(ids, batch.schema.field(at).type))


Encoder = Callable[[JsonRelease, pa.RecordBatch], bytes]


def _encode_zero_copy(release: JsonRelease, batch: pa.RecordBatch) -> bytes:
    sender = FORMS[release.release.form].sender
    assert issubclass(sender, ZeroCopySender)
    return encode_zero_copy(batch, sender.form, now_us())


_ENCODERS: Final[Mapping[MessagesForm, Encoder]] = {
    MessagesForm.LISTED: lambda release, batch: encode_sent(batch),
    MessagesForm.PLACED: lambda release, batch: encode_sent(batch),
    MessagesForm.HEADED: _encode_zero_copy,
    MessagesForm.TYPED: _encode_zero_copy,
    MessagesForm.BATCHED: lambda release, batch: encode_current(_draw_missing_ids(batch)),
}
"""Converts the messages of a document to those that its release sends over a connection."""


def _parse_and_encode(release: JsonRelease, encode: Encoder, body: bytes) -> tuple[SendDocument, bytes]:
    document = parse_send(body)
    try:
        return document, encode(release, document.batch)
    except LimitExceeded as error:
        # such as a header key with a kind, which releases before 0.9 cannot have
        raise MalformedMessage(str(error), reason=Reason.INVALID_HEADER_KEY) from None
