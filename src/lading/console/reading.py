"""Pages of messages: from an offset or a time on, forwards or backwards, with a filter or without.

A page is read in windows of offsets, so that a search reports its progress and ends when the page is closed.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from ..client.read_bounds import resolve_offset
from ..client.reading import PartitionReader, Selection
from ..client.received import to_messages
from ..model.errors import LocalError
from ..model.message import Message
from ..model.ranges import OffsetSpan, clip_ranges
from ..transports.interface import PartitionMeta, TopicMeta, Transport

WINDOW_MIN: Final = 4_096
"""The number of offsets that a filter reads first; it reads more after each window with too few matches."""
WINDOW_MAX: Final = 262_144
"""The window grows up to this: larger ones would delay progress reports and the end of a closed page."""
_FORMS: Final = (
    "write earliest, latest, an offset, -N for the last N, a time like 2026-01-31T12:00, or PARTITION:OFFSET,…"
)


@dataclass(slots=True)
class PageSpan:
    """The part of one partition that is left to read: offsets from ``first`` up to, not including, ``end``."""

    partition: int
    first: int
    end: int
    window: int
    damaged: list[OffsetSpan] = field(default_factory=list)
    """The damage that reads met, on this page or near it."""

    @property
    def left(self) -> int:
        """The number of offsets in the window."""
        return max(0, self.end - self.first)


@dataclass(slots=True)
class _WindowMessages:
    """The messages of one window, in the order of the page, each with the offset at which the span continues."""

    span: PageSpan
    window: tuple[int, int]
    messages: list[Message] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The messages that a page shows: at most ``count``, from ``at``, backwards if ``newest_first``.

    ``until`` is the cursor of the offsets at which such pages end, if an earlier page has set it.
    """

    at: str
    newest_first: bool
    count: int
    partition: int | None
    selection: Selection
    until: str = ""


def is_newest_first(at: str, asked: bool) -> bool:
    """Return the order of a page. No message is before ``earliest`` or after ``latest``, so these two reverse it."""
    return {"earliest": False, "latest": True}.get(at.strip(), asked)


def find_spans(transport: Transport, meta: TopicMeta, request: PageRequest) -> list[PageSpan]:
    """Return the span to read of each partition. Raises LocalError for an invalid place."""
    cursor = parse_cursor(request.at)
    ends = parse_cursor(request.until) or {}
    bound = None if cursor is not None else _parse_place(request.at, "latest" if request.newest_first else "earliest")
    spans = []
    for part in meta.partitions:
        if request.partition not in (None, part.number) or (cursor is not None and part.number not in cursor):
            continue
        first, end = part.first_offset, part.end_offset
        if cursor is not None:
            at = cursor[part.number]
        else:
            assert bound is not None
            at = _find_place(transport, meta, part, bound, newest_first=request.newest_first)
        if request.newest_first:
            end = min(end, at)
            first = max(first, ends.get(part.number, first))
            if isinstance(bound, int) and bound < 0:
                first = resolve_offset(transport, meta, part, bound)
        else:
            first = max(first, at)
        window = WINDOW_MIN if request.selection.where is not None else request.count
        spans.append(PageSpan(part.number, first, end, window))
    if request.partition is not None and not spans:
        raise LocalError(f"topic {meta.name!r} has no partition {request.partition}; list them with lading topic show")
    return spans


def read_spans(
    transport: Transport, meta: TopicMeta, request: PageRequest, spans: Sequence[PageSpan]
) -> Iterator[list[Message] | int]:
    """Yield the messages of a page as lists, in order, and between them the number of offsets read since.

    The spans hold the start of the next page afterwards.
    """
    missing = request.count
    while missing and any(span.left for span in spans):
        round_: list[_WindowMessages] = []
        for span in spans:
            if span.left:
                found = _read_window(transport, meta, span, request)
                round_.append(found)
                yield found.window[1] - found.window[0]
        merged = list(_merge(round_, newest_first=request.newest_first))
        page = merged[:missing]
        missing -= len(page)
        _advance_spans(round_, merged[len(page) :], newest_first=request.newest_first)
        if page:
            yield [message for _, message in page]


def cursor_of(spans: Sequence[PageSpan], *, newest_first: bool) -> str | None:
    """Return the start of the next page as a text for the URL; None after the last page."""
    if not any(span.left for span in spans):
        return None
    return ",".join(f"{span.partition}:{span.end if newest_first else span.first}" for span in spans if span.left)


def first_cursor_of(spans: Sequence[PageSpan]) -> str:
    """Return the offsets at which pages with the newest first end, as a text for the URL."""
    return ",".join(f"{span.partition}:{span.first}" for span in spans)


def find_damage(
    meta: TopicMeta, met: Mapping[int, Sequence[OffsetSpan]], since: str, until: str, spans: Sequence[PageSpan], *,
    newest_first: bool,
) -> dict[int, list[OffsetSpan]]:  # fmt: skip
    """Return the part of the damage ``met`` between the cursor ``since`` and the start of the next page.

    For a partition that has been read completely, the end is ``until`` (newest first) or its own end.
    """
    begun, firsts = parse_cursor(since) or {}, parse_cursor(until) or {}
    ends = {span.partition: span.end if newest_first else span.first for span in spans}
    found = {}
    for part in meta.partitions:
        if part.number in begun:
            last = firsts.get(part.number, part.first_offset) if newest_first else part.end_offset
            low, high = sorted((begun[part.number], ends.get(part.number, last)))
            found[part.number] = clip_ranges(met.get(part.number, ()), low, high)
    return found


def parse_cursor(at: str) -> dict[int, int] | None:
    """Return offsets by partition from ``0:120,1:80``; None for another text. Raises LocalError for an incomplete
    one."""
    if ":" not in at or "T" in at or "-" in at:
        return None
    found = {}
    for part in at.split(","):
        partition, _, offset = part.partition(":")
        if not (partition.isdecimal() and offset.isdecimal() and len(part) < 40):
            raise LocalError(f"{at[:80]!r}: not a place in a topic; {_FORMS}")
        found[int(partition)] = int(offset)
    return found


def _parse_place(at: str, default: str) -> str | int | datetime:
    text = at.strip() or default
    if text in ("earliest", "latest"):
        return text
    if text.removeprefix("-").isdecimal() and len(text) <= 20:
        return int(text)
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise LocalError(f"{text[:80]!r}: not a place in a topic; {_FORMS}") from None


def _find_place(
    transport: Transport, meta: TopicMeta, part: PartitionMeta, bound: str | int | datetime, *, newest_first: bool
) -> int:
    if newest_first and isinstance(bound, int):
        # the page includes an offset that the user typed, in both directions; the last N begin at the end
        return bound + 1 if bound >= 0 else part.end_offset
    return resolve_offset(transport, meta, part, bound)


def _read_window(transport: Transport, meta: TopicMeta, span: PageSpan, request: PageRequest) -> _WindowMessages:
    """Read the next window of a partition; forwards only as far as the page needs."""
    newest_first = request.newest_first
    low = max(span.first, span.end - span.window) if newest_first else span.first
    high = span.end if newest_first else min(span.end, span.first + span.window)
    reader = PartitionReader(transport, meta, span.partition, low, end=high, sure=False)
    batches: list[Any] = []
    rows = 0
    is_cut = False
    while not reader.done:
        before = reader.position
        for batch in reader.read(request.selection):
            batches.append(batch)
            rows += batch.num_rows
        if reader.position == before:
            # no message follows, such as after the last message of a transaction
            break
        # backwards, only the last messages of a window can be on the page
        while newest_first and batches and rows - batches[0].num_rows >= request.count:
            rows -= batches.pop(0).num_rows
            is_cut = True
        if not newest_first and rows >= request.count:
            high = reader.position
            break
    span.damaged += reader.damaged
    if newest_first and batches:
        is_cut |= rows > request.count
        batches[0] = batches[0].slice(max(0, rows - request.count))
    messages = [one for batch in batches for one in to_messages(batch, meta.stream, meta.topic, span.partition)]
    if newest_first:
        messages.reverse()
        low = messages[-1].offset if is_cut else low
    if not messages:
        span.window = min(4 * span.window, WINDOW_MAX)
    return _WindowMessages(span, (low, high), messages)


def _merge(round_: Sequence[_WindowMessages], *, newest_first: bool) -> Iterator[tuple[_WindowMessages, Message]]:
    """Yield the messages of all partitions by their time; those of one partition stay in its order."""

    def keyed(found: _WindowMessages) -> Iterator[tuple[int, int, int, tuple[_WindowMessages, Message]]]:
        sign = -1 if newest_first else 1
        latest: int | None = None
        for number, message in enumerate(found.messages):
            at = sign * message.timestamp_us
            # a time earlier than one before it in the partition counts as that one
            latest = at if latest is None or at > latest else latest
            yield latest, found.span.partition, number, (found, message)

    for *_, one in heapq.merge(*map(keyed, round_), key=lambda item: item[:3]):
        yield one


def _advance_spans(
    round_: Sequence[_WindowMessages], unsent: Sequence[tuple[_WindowMessages, Message]], *, newest_first: bool
) -> None:
    """Move each span past its window, or to its first message that was not sent."""
    first_unsent: dict[int, int] = {}
    for found, message in unsent:
        first_unsent.setdefault(found.span.partition, message.offset)
    for found in round_:
        low, high = found.window
        offset = first_unsent.get(found.span.partition)
        if newest_first:
            found.span.end = low if offset is None else offset + 1
        else:
            found.span.first = high if offset is None else offset
