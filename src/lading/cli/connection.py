"""Connections of commands to a broker or a directory: opening it, settings, rows of tables."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..model.errors import LadingError, LocalError

if TYPE_CHECKING:
    from ..columns.statistics import HeaderStatistics
    from ..pipeline.settings import PipelineSettings
    from ..settings.loading import Loaded
    from ..transports.fetched import States
    from ..transports.group_administration import GroupAdministration
    from ..transports.interface import PartitionMeta, TopicMeta, Transport
    from ..transports.lading.transport import LadingTransport
    from ..transports.topic_selection import TopicSelection


def load_settings(config: Path | None, sets: Sequence[str]) -> Loaded:
    """Return the settings of the file, the environment and ``--set``; later ones override earlier ones."""
    from ..settings.loading import load

    return load(config, sets, os.environ)


def load_defaults() -> Loaded:
    """Return the default settings."""
    from ..settings.loading import load

    return load(None, [], {})


@contextmanager
def open_source(url: str) -> Iterator[Transport]:
    """Open the transport of a URL or directory; it is closed at the end of the block."""
    from ..transports.open import open_transport

    transport = open_transport(url)
    try:
        yield transport
    finally:
        transport.close()


@contextmanager
def _open_as(kind: type[Any], url: str, problem: str) -> Iterator[Any]:
    """Open a transport of this kind. Raises LocalError, ``problem`` followed by the URL, for another kind."""
    with open_source(url) as transport:
        if not isinstance(transport, kind):
            raise LocalError(f"{problem} {url}")
        yield transport


@contextmanager
def admin(url: str) -> Iterator[LadingTransport]:
    """Open the admin endpoint at ``url``. Raises LocalError if the URL is of another protocol."""
    from ..transports.lading.transport import LadingTransport

    problem = "this command talks to Lading's admin endpoint (lading://host:port), not to"
    with _open_as(LadingTransport, url, problem) as transport:
        yield transport


@contextmanager
def group_administration(url: str) -> Iterator[GroupAdministration]:
    """Open a transport that reports consumer groups at ``url``. Raises LocalError if its server does not."""
    from ..transports.group_administration import GroupAdministration

    problem = "groups are listed and changed over lading:// and kafka://, not at"
    with _open_as(GroupAdministration, url, problem) as transport:
        yield transport


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation; without a terminal, require ``--yes``."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise LocalError(f"{question} Not a terminal, cannot ask; pass --yes.")
    import typer

    typer.confirm(question, abort=True, err=True)


def topic_row(meta: TopicMeta) -> dict[str, Any]:
    """Return the row of a topic in the table of topics; its size is None if the server does not report it."""
    sizes = [part.size_bytes for part in meta.partitions if part.size_bytes is not None]
    return {
        "name": meta.name,
        "stream": meta.stream,
        "topic": meta.topic,
        "partitions": len(meta.partitions),
        "messages": sum(part.end_offset - part.first_offset for part in meta.partitions),
        "size_bytes": sum(sizes) if sizes or not meta.partitions else None,
    }


def partition_row(part: PartitionMeta) -> dict[str, Any]:
    """Return the row of a partition in ``lading topic show``."""
    return {
        "partition": part.number,
        "first_offset": part.first_offset,
        "end_offset": part.end_offset,
        "messages": part.end_offset - part.first_offset,
        "epoch": part.epoch,
    } | ({} if part.dirty_share is None else {"dirty_share": part.dirty_share})


TOPICS_LOOKED_AT = 20
"""At most this many of the selected topics are searched for headers."""
PAYLOADS_LOOKED_AT = 100
"""Number of payloads read to explain why a condition on payloads found nothing."""
LOOKED_AT = 10_000
"""Number of messages searched for headers to explain why a filter found nothing."""


def absent_headers(
    from_: str, topic: str | Sequence[str], where: str, states: States = "available", *, found: bool = False,
    reads_json: bool = True,
) -> Iterator[str]:  # fmt: skip
    """Yield a hint for each header that a filter names but no message has, with the most similar existing name.

    If the filter ``found`` messages, only names that may be texts without quotes are checked. Only the first LOOKED_AT
    messages are read, and none of a queue, because reading would consume them. With ``reads_json`` there is a hint if a
    condition on payloads found nothing because they are not JSON.
    """
    from ..filter.parse import parse
    from ..filter.tree import PayloadRef, operands

    condition = parse(where)
    keys = condition.unquoted if found else condition.header_keys
    yield from _find_absent(from_, topic, keys, condition.unquoted, states)
    if reads_json and not found and any(isinstance(node, PayloadRef) for node in operands(condition.tree)):
        yield from _describe_payloads(from_, topic, states)


def _describe_payloads(from_: str, topic: str | Sequence[str], states: States) -> Iterator[str]:
    """Yield a message if none of the first payloads is JSON, as a condition without other options reads them."""
    from ..client.consumer import Consumer
    from ..payloads.form import ID_HEADER
    from ..transports.open import is_queue

    if is_queue(from_):
        return
    options: Any = {"states": states, "start": "earliest", "timeout_s": 0, "verify_checksum": False}
    payloads: list[bytes] = []
    with_id = False
    with Consumer(from_, topic if isinstance(topic, str) else topic[:TOPICS_LOOKED_AT], **options) as consumer:
        for message in consumer:
            payload = message.payload or b""
            if payload.lstrip()[:1] == b"{":
                return
            payloads += [payload] if payload else []
            with_id |= payload[:1] in (b"\0", b"\1") or message.headers.get(ID_HEADER) is not None
            if len(payloads) >= PAYLOADS_LOOKED_AT:
                break
    if payloads:
        remedy = "as they seem to have ids of schemas" if with_id else "or --payload-schema FILE"
        count = f"{len(payloads):,} payload{'s' * (len(payloads) > 1)}"
        yield f"none of the first {count} of {topic} is a JSON object; add --registry URL, {remedy}"


def absent_columns(from_: str, topic: str | Sequence[str], columns: str, states: States = "available") -> Iterator[str]:
    """Yield a message for each header that becomes a column and that no message has."""
    from ..columns.contract import parse_columns

    yield from _find_absent(from_, topic, parse_columns(columns).header_keys, (), states)


def _find_absent(
    from_: str, topic: str | Sequence[str], keys: Sequence[str], unquoted: Sequence[str], states: States
) -> Iterator[str]:
    from ..columns.seen_headers import unseen_sentence
    from ..transports.open import is_queue

    if not keys or is_queue(from_):
        return
    seen = header_statistics(from_, topic, states=states, limit=LOOKED_AT, wanted=keys)
    if seen.messages:
        names = topic if isinstance(topic, str) else ", ".join(topic)
        among = f"the first {LOOKED_AT:,} messages" if seen.messages >= LOOKED_AT else "the messages"
        for key in dict.fromkeys(keys):
            if key not in seen.keys:
                yield unseen_sentence(key, list(seen.keys), f"{among} of {names}", quote=key in unquoted)


def absent_contract(settings: PipelineSettings) -> Iterator[str]:
    """Yield a message for each header that a pipeline declares, or names in a condition, and no message has.

    Sources that cannot be read are skipped: the pipeline reports them. A missing required header shows in quarantine.
    """
    from ..columns.seen_headers import unseen_sentence
    from ..columns.statistics import HeaderStatistics
    from ..pipeline.settings_problems import list_condition_keys
    from ..transports.open import is_queue

    declared = settings.contract.headers
    keys = {*list_condition_keys(settings), *(column.header for column in declared)}
    keys -= {column.header for column in declared if column.required}
    if not keys:
        return
    seen = HeaderStatistics(wanted=keys)
    for source in settings.document.source:
        url = settings.url(source.from_)
        try:
            if is_queue(url):
                return
            options = settings.transport(source)
            topics = find_topics(url, source.selection, options)
            seen.merge(
                header_statistics(url, topics, states=source.states, limit=LOOKED_AT, wanted=keys, transport=options)
            )
        except LadingError:
            return
    if seen.messages:
        among = f"the {seen.messages:,} messages that were looked at" if seen.messages > 1 else "the messages looked at"
        for key in sorted(keys - seen.keys.keys()):
            yield unseen_sentence(key, list(seen.keys), among)


def find_topics(from_: str, selection: TopicSelection, options: Mapping[str, Any] | None = None) -> list[str]:
    """Return the flat names of the topics that are selected, as they are now; none if nothing matches a pattern."""
    if selection.pattern is None and len(selection.names) == 1:
        return [*selection.names]
    from ..transports.open import open_transport

    transport = open_transport(from_, **(options or {}))
    try:
        return [meta.name for meta in selection.find(transport)]
    finally:
        transport.close()


def header_statistics(
    from_: str, topic: str | Sequence[str], *, where: str | None = None, states: States = "available",
    limit: int | None = None, wanted: Collection[str] = (),
    on_rows: Callable[[int], None] = lambda rows: None, transport: Mapping[str, Any] | None = None,
) -> HeaderStatistics:  # fmt: skip
    """Return the header statistics of the messages of a topic, or of the first topics of several.

    ``wanted`` keys are counted however many others there are. ``on_rows`` is called with the number of further messages
    read. ``transport`` holds options of the connection.
    """
    from ..client.consumer import Consumer
    from ..columns.statistics import HeaderStatistics

    statistics = HeaderStatistics(wanted)
    # a damaged payload does not hide the headers
    options: Any = {"where": where, "states": states, "start": "earliest", "timeout_s": 0, "verify_checksum": False}
    with Consumer(
        from_, topic if isinstance(topic, str) else topic[:TOPICS_LOOKED_AT], **options, **(transport or {})
    ) as consumer:
        for batch in consumer.batches():
            looked_at = batch if limit is None else batch.slice(0, limit - statistics.messages)
            statistics.add(looked_at)
            on_rows(looked_at.num_rows)
            if limit is not None and statistics.messages >= limit:
                break
    return statistics
