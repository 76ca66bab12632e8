"""Side effects of a committed batch: messages for topics, copies of quarantined ones, and message states at the source.

Both work from staged files that the manifest lists, and can be restarted at any point.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ..client.arrived import skip_arrived
from ..client.delivery import DeliveryTarget, send_once
from ..client.outgoing import OUT_SCHEMA
from ..model.errors import LocalError, Reason, Refusal
from ..model.protocol import MessageBound
from ..model.state import State
from ..tables.commit.state import PipelineStateDirectory as PipelineState
from ..tables.commit.table_commit import delete_staged
from ..tables.formats.manifest import TABLE, DataFile, Manifest
from ..tables.plan.options import DEDUPE_HEADER, type_transport
from ..tables.storage.files import read_document, write_document
from ..transports.fitting import MessageTooLarge, capabilities_at
from ..transports.interface import HeaderAwareTransport, Marking, TopicMeta, Transport
from ..transports.lading.transport import LadingTransport
from ..transports.open import is_queue, open_transport
from ..transports.topics import UnknownTopic
from ..transports.transactions import TransactionalTransport
from .late_refusals import find_late_refusals, leave_out, publish_refused
from .sending_record import SendingRecord
from .settings import PipelineSettings
from .staged_messages import COPIES, STATES, name_address, read_staged

LONG_RANGE = 64
OFFSETS_AT_ONCE = 20_000
"""Messages whose states one request sets; a range of LONG_RANGE has a request of its own."""


class NoHeadersThere(LocalError):
    """A server does not support headers, without which a copy could not say what it is."""


def apply_side_effects(state: PipelineState, manifest: Manifest, settings: PipelineSettings) -> None:
    """Apply the side effects of a manifest, the last one. Idempotent: a second call does nothing.

    Messages for a topic arrive once if its server has transactions: a Lading broker keeps the key of pipeline and
    manifest, a Kafka cluster the manifest decided last. If messages can be read back, those that arrived before a crash
    are left out; a queue gets them again, with the same mark on each message. Messages that a topic refuses for their
    size go to quarantine, by a manifest after this one.
    """
    marker = state.own / "delivered.json"
    known = read_document(marker)
    if known is not None and known["number"] >= manifest.number:
        return
    errands = sorted((file for file in manifest.files if file.kind != TABLE), key=lambda file: (file.kind, file.target))
    record = SendingRecord.read(state.own / "sending.json", manifest.number)
    for (kind, target), group in groupby(errands, key=lambda file: (file.kind, file.target)):
        files = list(group)
        if kind == STATES:
            batches = read_staged(state, files)
            _set_states(target, batches, f"a route of pipeline {state.pipeline}", settings.access(target))
            continue
        name = f"{kind} {target}"
        if not record.is_done(name):
            topic = name_address(target).topic
            # all copies of a pipeline go to one topic, its messages to as many as there are routes
            scope = state.pipeline if kind == COPIES else f"{state.pipeline}/{topic}"
            sending = TopicSending(f"lading-pipeline-{state.pipeline}-{kind}-{topic}", record, name)
            # numbers begin again in a state that was put back from a backup, tokens of runs do not
            key = f"{scope}/{manifest.number}-{manifest.run}"
            _send_accepted(state, files, key, settings, sending)
            record.note_done(name)
    if record.refused:
        amended = publish_refused(state, manifest, settings, record.refused)
        apply_side_effects(state, amended, settings)
    else:
        write_document(marker, {"number": manifest.number})
        record.forget()
    delete_staged(state, errands)


def _send_accepted(
    state: PipelineState, files: Sequence[DataFile], key: str, settings: PipelineSettings, sending: TopicSending
) -> None:
    """Send the messages staged for one topic, except those too large for it, which the record of sending lists."""
    address, record, name = name_address(files[0].target), sending.record, sending.name
    assert record is not None
    while True:
        refused = record.refused.get(name, {})
        batches = leave_out(read_staged(state, files), refused)
        try:
            send_copies(address.server, address.topic, key, batches, settings.access(address.server), sending)
            return
        except MessageTooLarge as error:
            found = find_late_refusals(files[0].kind, read_staged(state, files), refused, address, error.bound)
            if not found:
                raise
            # before anything is sent again, so that a repeat after a crash leaves out the same ones
            record.note_refused(name, found)


class TopicSending(NamedTuple):
    """The sending of one batch to one topic: the id of its transactions at Kafka, its record, and its name there."""

    transactional_id: str
    record: SendingRecord | None = None
    """None if other writers use the topic too: messages that have arrived cannot be distinguished from theirs then."""
    name: str = ""


def send_copies(
    server: str, topic: str, key: str, batches: Iterable[pa.RecordBatch], access: Mapping[str, Any],
    sending: TopicSending | None = None,
) -> int:  # fmt: skip
    """Send messages, fitted to the target, each to the partition it came from; return how many.

    Under ``key`` a Lading broker has them once; with ``sending`` others have, too, as far as they can. ``access`` holds
    the transport options of the server. Raises UnknownTopic and NoHeadersThere before anything is sent,
    MessageTooLarge if the topic refuses a message for its size.
    """
    with open_server(server, access) as transport:
        meta = _require_headers(transport, server, topic)
        parts = _by_partition(batches, len(meta.partitions))
        target = DeliveryTarget(server, topic, "")
        record = None if sending is None else sending.record
        if sending is not None and isinstance(transport, TransactionalTransport):
            target = target._replace(transactional_id=sending.transactional_id)
        elif record is not None and is_queue(server):
            target = target._replace(dedupe_header=DEDUPE_HEADER)
        elif sending is not None and record is not None and not isinstance(transport, LadingTransport):
            ends = {part.number: part.end_offset for part in meta.partitions}
            before = record.note_begin(sending.name, ends)
            if before is not None:
                parts = skip_arrived(transport, topic, before, parts)
        try:
            return send_once(transport, target, key, parts)
        except MessageTooLarge as error:
            known_bound = capabilities_at(transport, topic).bound
            raise MessageTooLarge(
                f"{server}, topic {topic!r}: {error}; nothing is lost: raise that limit, and run this again",
                # a limit that was raised again meanwhile does not explain the refusal
                known_bound
                if known_bound is not None and known_bound.bytes_max <= error.bound.bytes_max
                else error.bound,
            ) from None


def sends_once(server: str, access: Mapping[str, Any]) -> bool:
    """Return whether ``send_copies`` repeated after a crash sends nothing twice to this server, whoever else writes."""
    with open_server(server, access) as transport:
        return isinstance(transport, LadingTransport | TransactionalTransport)


def check_topic(server: str, topic: str, access: Mapping[str, Any]) -> None:
    """Raise NoHeadersThere if the topic cannot hold copies, or the transport's error if its server is unreachable."""
    with open_server(server, access) as transport, suppress(UnknownTopic):
        _require_headers(transport, server, topic)


def require_topic(server: str, topic: str, access: Mapping[str, Any]) -> None:
    """Raise UnknownTopic or NoHeadersThere if the topic takes no copies, or the transport's error."""
    with open_server(server, access) as transport:
        _require_headers(transport, server, topic)


def ensure_topic(
    server: str, topic: str, partitions: int, access: Mapping[str, Any]
) -> tuple[TopicMeta, MessageBound | None]:
    """Return a topic to send to, created if it is missing, and its message bound, if its server reports that.

    Raises NoHeadersThere if it takes no headers.
    """
    with open_server(server, access) as transport:
        meta = _find_or_create(transport, server, topic, partitions)
        return meta, capabilities_at(transport, meta.name).bound


def _find_or_create(transport: Transport, server: str, topic: str, partitions: int) -> TopicMeta:
    try:
        return _require_headers(transport, server, topic)
    except UnknownTopic:
        try:
            return transport.create_topic(topic, partitions)
        except Refusal as error:
            if error.reason is not Reason.TOPIC_NAME_EXISTS:
                raise
            return transport.topic(topic)


@contextmanager
def open_server(url: str, access: Mapping[str, Any]) -> Iterator[Transport]:
    """Open a server with the options of the pipeline's file; it is closed at the end of the block."""
    transport = open_transport(url, **type_transport(access))
    try:
        yield transport
    finally:
        transport.close()


def _require_headers(transport: Transport, server: str, topic: str) -> TopicMeta:
    """Return the topic as it is. Raises NoHeadersThere if its messages cannot have headers."""
    meta = transport.topic(topic)
    if isinstance(transport, HeaderAwareTransport) and not transport.takes_headers(topic):
        raise NoHeadersThere(
            f"topic {topic!r} at {server} accepts no headers, and messages carry some, quarantined ones at least those "
            "that say why and how often; name a topic at a server that keeps headers (route.to, quarantine.server, "
            "source.server), or no topic there"
        )
    return meta


def _by_partition(batches: Iterable[pa.RecordBatch], partitions: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the messages by the partition that they came from."""
    for batch in batches:
        numbers: Any = batch.column("partition")
        for number in pc.unique(numbers).to_pylist():
            mine = batch.filter(pc.equal(numbers, pa.scalar(number, pa.int32())))
            yield number % partitions, mine.select(OUT_SCHEMA.names)


def _set_states(server: str, batches: Iterable[pa.RecordBatch], reason: str, access: Mapping[str, Any]) -> None:
    """Set states: one request per long range, many scattered messages per request."""
    with open_server(server, access) as transport:
        if not isinstance(transport, Marking):
            raise LocalError(f"states cannot be set at {server}; set_state takes a broker of Lading's")
        scattered: dict[tuple[str, int, int], list[int]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                topic, partition, first, end, state = (row[name] for name in batch.schema.names)
                if end - first >= LONG_RANGE:
                    whole = {"first": first, "end": end, "state": State(state).word, "reason": reason}
                    transport.put_states(topic, whole, partition)
                else:
                    scattered.setdefault((topic, partition, state), []).extend(range(first, end))
        for (topic, partition, state), offsets in scattered.items():
            for at in range(0, len(offsets), OFFSETS_AT_ONCE):
                some = offsets[at : at + OFFSETS_AT_ONCE]
                single = {"offsets": some, "state": State(state).word, "reason": reason}
                transport.put_states(topic, single, partition)
