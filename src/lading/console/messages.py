"""Messages for the page: a page of them, a count of matches, new messages as they arrive, and one complete message."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..client.consumer import Consumer
from ..client.read_bounds import Bound
from ..client.reading import PartitionReader, Selection
from ..client.received import to_messages
from ..client.unseen import find_seen_headers
from ..model.errors import CorruptLog, LocalError
from ..payloads.form import PayloadForm
from ..transports.fetched import States
from ..transports.interface import TopicMeta, Transport
from .counting import PROGRESS_S, count_matches
from .documents import show_whole, summarize
from .payload_forms import ListDecoder, TopicForms
from .reading import (
    PageRequest,
    cursor_of,
    find_damage,
    find_spans,
    first_cursor_of,
    is_newest_first,
    parse_cursor,
    read_spans,
)
from .responses import Document, json_answer, number_of, stream_answer, text_of
from .source import ConsoleSource

PAGE_MAX: Final = 500
TAIL_WAIT_S: Final = 0.5
TAIL_A_SECOND_MAX: Final = 200
"""A tail shows at most this many messages a second and counts the others: no person reads faster."""


class MessagePages:
    """Handlers."""

    def __init__(self, source: ConsoleSource, pipelines: Sequence[Path] = ()) -> None:
        """``pipelines`` have the contracts by which payloads are decoded."""
        self._source = source
        self._forms = TopicForms(source, pipelines)

    def routes(self) -> list[Route]:
        """Return the table for the router."""
        return [
            Route("/api/messages", self._list_messages),
            Route("/api/count", self._count_messages),
            Route("/api/tail", self._tail_topic),
            Route("/api/message", self._show_message),
        ]

    def _list_messages(self, request: Request) -> Response:
        wanted = _page_request(request)
        topic, columns = text_of(request, "topic"), _parse_columns(request)
        # the start of the first of several pages: one sentence reports the losses of all
        since = request.query_params.get("since", "")

        def page() -> Iterator[Document]:
            began_s = told_s = time.monotonic()
            with self._source.lend() as transport:
                meta = transport.topic(topic)
                mask = self._source.mask_of(meta)
                mask.require_searchable(wanted.selection.filter)
                decode = ListDecoder(self._forms.of(meta)).decode
                spans = find_spans(transport, meta, wanted)
                until = wanted.until or (first_cursor_of(spans) if wanted.newest_first else "")
                begun = since or cursor_of(spans, newest_first=wanted.newest_first) or ""
                looked_at, total, has_found = 0, sum(span.left for span in spans), False
                for some in read_spans(transport, meta, wanted, spans):
                    if isinstance(some, list):
                        has_found = True
                        yield {"messages": [summarize(one, columns, mask, decode) for one in some]}
                        continue
                    looked_at += some
                    if time.monotonic() - told_s > PROGRESS_S:
                        told_s = time.monotonic()
                        yield {"looked_at": looked_at, "total": total}
                met = self._source.met_damage
                met.add(meta, {span.partition: span.damaged for span in spans})
                damaged = find_damage(meta, met.of(meta), begun, until, spans, newest_first=wanted.newest_first)
                yield {
                    "end": True, "order": "new" if wanted.newest_first else "old",
                    "next": cursor_of(spans, newest_first=wanted.newest_first), "since": begun, "until": until,
                    "looked_at": looked_at, "total": total, "seconds": time.monotonic() - began_s,
                    "lost": met.describe(meta, damaged),
                } | ({} if has_found else _describe_unseen(transport, meta, wanted.selection))  # fmt: skip

        return stream_answer(page)

    def _count_messages(self, request: Request) -> Response:
        topic, partition = text_of(request, "topic"), _parse_partition(request)
        selection = _parse_selection(request, columns="offset")

        return stream_answer(lambda: count_matches(self._source, topic, partition, selection))

    def _tail_topic(self, request: Request) -> Response:
        topic, partition, columns = text_of(request, "topic"), _parse_partition(request), _parse_columns(request)
        where, states = _parse_where(request), _parse_states(request)
        cursor = parse_cursor(request.query_params.get("at", ""))
        start: Bound = "latest" if cursor is None else cursor
        if cursor is None and partition is not None:
            start = {partition: "latest"}

        def arriving() -> Iterator[Document]:
            with self._source.lend() as transport:
                meta = transport.topic(topic)
                mask, decode = self._source.mask_of(meta), ListDecoder(self._forms.of(meta)).decode
                mask.require_searchable(None if where is None else _parse_selection(request).filter)
            options: dict[str, Any] = {"where": where, "states": states, "start": start, "on_loss": "skip"}
            with Consumer(self._source.url, topic, verify_checksum=False, **options, **self._source.login) as consumer:
                meta = consumer.transport.topic(topic)
                yield {"at": _write_positions(consumer)}
                budget, refill_s = TAIL_A_SECOND_MAX, time.monotonic()
                while True:
                    messages = consumer.poll(PAGE_MAX, TAIL_WAIT_S)
                    if (now_s := time.monotonic()) - refill_s >= 1:
                        budget, refill_s = TAIL_A_SECOND_MAX, now_s
                    shown = messages[:budget]
                    budget -= len(shown)
                    yield {
                        "messages": [summarize(one, columns, mask, decode) for one in shown],
                        "skipped": len(messages) - len(shown),
                        "at": _write_positions(consumer),
                        "lost": self._source.met_damage.describe(meta, _damage_of(consumer)),
                    }

        return stream_answer(arriving)

    def _show_message(self, request: Request) -> Response:
        partition, offset = _parse_partition(request), request.query_params.get("offset", "")
        if partition is None or not offset.isdecimal() or len(offset) > 20:
            raise LocalError("no message is named; send its topic, partition and offset")
        with self._source.lend() as transport:
            meta = transport.topic(text_of(request, "topic"))
            return json_answer(read_one(transport, meta, partition, int(offset), self._source, self._forms.of(meta)))


def read_one(
    transport: Transport, meta: TopicMeta, partition: int, offset: int, source: ConsoleSource, form: PayloadForm
) -> Document:
    """Return the complete message at an offset, in any state.

    Raises LocalError if the message does not exist, and CorruptLog, after noting it in the source, if it is damaged.
    """
    if partition >= len(meta.partitions):
        raise LocalError(f"topic {meta.name!r} has no partition {partition}; list them with lading topic show")
    reader = PartitionReader(transport, meta, partition, offset, end=offset + 1, sure=False)
    selection = Selection.parse(None, None, "all", verify=False, on_loss="skip")
    for batch in reader.read(selection):
        for message in to_messages(batch, meta.stream, meta.topic, partition):
            if message.offset == offset:
                return {"topic": meta.name} | show_whole(message, form, source.mask_of(meta))
    if reader.damaged:
        source.met_damage.add(meta, {partition: reader.damaged})
        raise CorruptLog(
            f"topic {meta.name!r}, partition {partition}: the message at offset {offset} could not be read: it is "
            "damaged in the log"
        )
    raise LocalError(
        f"topic {meta.name!r}, partition {partition}: no message at offset {offset} any more, or not yet; "
        "choose another offset"
    )


def _describe_unseen(transport: Transport, meta: TopicMeta, selection: Selection) -> Document:
    """Return a sentence for each header of the filter that no message has, and the names that messages have."""
    if not selection.keys:
        return {}
    seen = find_seen_headers(transport, meta, selection)
    among = f"the newest {seen.messages:,} messages of {meta.name!r}"
    unquoted = selection.filter.unquoted if selection.filter else ()
    return {"unseen": seen.sentences(among, unquoted) if seen.messages else [], "names": list(seen.names)}


def _damage_of(consumer: Consumer) -> dict[int, list[tuple[int, int]]]:
    return {partition: ranges for (_, partition), ranges in consumer.damage().items()}


def _write_positions(consumer: Consumer) -> str:
    return ",".join(f"{partition}:{offset}" for (_, partition), offset in consumer.positions().items())


def _page_request(request: Request) -> PageRequest:
    at = request.query_params.get("at", "")
    return PageRequest(
        at,
        is_newest_first(at, request.query_params.get("order", "new") != "old"),
        number_of(request, "count", 50, PAGE_MAX),
        _parse_partition(request),
        _parse_selection(request),
        request.query_params.get("until", ""),
    )


def _parse_selection(request: Request, columns: str | None = None) -> Selection:
    return Selection.parse(columns, _parse_where(request), _parse_states(request), verify=False, on_loss="skip")


def _parse_where(request: Request) -> str | None:
    return request.query_params.get("where", "").strip() or None


def _parse_states(request: Request) -> States:
    return "all" if request.query_params.get("states") == "all" else "available"


def _parse_columns(request: Request) -> frozenset[str]:
    return frozenset(request.query_params.getlist("column"))


def _parse_partition(request: Request) -> int | None:
    text = request.query_params.get("partition", "")
    if not text:
        return None
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise LocalError(f"partition {text[:40]!r}: a number from 0")
    return int(text)
