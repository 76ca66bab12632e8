"""Side effects of a committed batch: copies to the quarantine topic and message states at the source.

Both work from staged files that the manifest lists, and can be restarted at any point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..client.delivery import send_once
from ..client.outgoing import OUT_SCHEMA
from ..model.errors import CorruptLog, LocalError, Reason, Refusal
from ..model.state import State
from ..tables.files import read_document, write_document
from ..tables.manifest import TABLE, DataFile, Manifest
from ..tables.options import transport_options
from ..tables.state import PipelineStateDirectory as PipelineState
from ..tables.table_commit import delete_staged, staging_path
from ..transports.interface import HeaderAwareTransport, Marking, Transport
from ..transports.open import open_transport
from ..transports.topics import UnknownTopic
from .range_writer import COPIES, STATES

LONG_RANGE = 64
OFFSETS_AT_ONCE = 20_000
"""Messages whose states one request sets; a range of LONG_RANGE has a request of its own."""
Access = Callable[[str], Mapping[str, Any]]
"""Returns the transport options of a server, such as credentials, which manifests do not contain."""


class NoHeadersThere(LocalError):
    """A server does not support headers, without which a copy could not say what it is."""


def apply_side_effects(state: PipelineState, manifest: Manifest, access: Access) -> None:
    """Apply the side effects of a manifest. Idempotent: a second call does nothing.

    Over ``lading://`` copies are sent in a transaction whose key is pipeline and manifest, so that they are in the
    topic exactly once; at other servers a crash between sending and recording it duplicates them.
    """
    marker = state.own / "delivered.json"
    known = read_document(marker)
    if known is not None and known["number"] >= manifest.number:
        return
    errands = sorted((file for file in manifest.files if file.kind != TABLE), key=lambda file: (file.kind, file.target))
    for (kind, target), group in groupby(errands, key=lambda file: (file.kind, file.target)):
        files = list(group)
        if kind == COPIES:
            topic, _, server = target.partition(" ")
            key = f"{state.pipeline}/{manifest.number}"
            send_copies(server, topic, key, _batches(state, files), access(server))
        elif kind == STATES:
            _set_states(target, _batches(state, files), f"a route of pipeline {state.pipeline}", access(target))
    write_document(marker, {"number": manifest.number})
    delete_staged(state, errands)


def send_copies(server: str, topic: str, key: str, batches: Iterable[pa.RecordBatch], access: Mapping[str, Any]) -> int:
    """Send messages, fitted to the target, each to the partition it came from; return how many.

    Under ``key`` they arrive once. ``access`` holds the transport options of the server. Raises UnknownTopic and
    NoHeadersThere before anything is sent.
    """
    with open_server(server, access) as transport:
        partitions = _partitions(transport, server, topic)
        return send_once(transport, topic, key, _by_partition(batches, partitions))


def check_topic(server: str, topic: str, access: Mapping[str, Any]) -> None:
    """Raise NoHeadersThere if the topic cannot hold copies, or the transport's error if its server is unreachable."""
    with open_server(server, access) as transport, suppress(UnknownTopic):
        _partitions(transport, server, topic)


def ensure_topic(server: str, topic: str, partitions: int, access: Mapping[str, Any]) -> None:
    """Create the quarantine topic if it is missing. Raises NoHeadersThere if it could not hold copies."""
    with open_server(server, access) as transport:
        try:
            _partitions(transport, server, topic)
        except UnknownTopic:
            try:
                transport.create_topic(topic, partitions)
            except Refusal as error:
                if error.reason is not Reason.TOPIC_NAME_EXISTS:
                    raise


@contextmanager
def open_server(url: str, access: Mapping[str, Any]) -> Iterator[Transport]:
    """Open a server with the options of the pipeline's file; it is closed at the end of the block."""
    transport = open_transport(url, **transport_options({f"transport.{name}": str(access[name]) for name in access}))
    try:
        yield transport
    finally:
        transport.close()


def _partitions(transport: Transport, server: str, topic: str) -> int:
    """Return how many partitions the topic has. Raises NoHeadersThere if it cannot hold copies."""
    count = len(transport.topic(topic).partitions)
    if isinstance(transport, HeaderAwareTransport) and not transport.takes_headers(topic):
        raise NoHeadersThere(
            f"topic {topic!r} at {server} accepts no headers, and what is quarantined or sent again carries some that "
            "say why and how often; name a server that keeps headers (quarantine.server, source.server), or no "
            "quarantine topic"
        )
    return count


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


def _batches(state: PipelineState, files: Iterable[DataFile]) -> Iterator[pa.RecordBatch]:
    for file in files:
        path = staging_path(state, file)
        try:
            with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
                yield from reader
        except (FileNotFoundError, pa.ArrowInvalid) as error:
            raise CorruptLog(
                f"{path} holds {file.rows} {file.kind} that are not delivered yet, and cannot be read: {error}"
            ) from None
