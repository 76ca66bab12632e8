"""Start and end of reading: from a user's specification to one offset per partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from ..model.errors import LocalError, SettingError
from ..model.message import EPOCH
from ..transports.interface import PartitionMeta, TopicMeta, Transport

TopicPartition = tuple[str, int]
"""Flat topic name and partition."""
OffsetSpec = str | int | datetime
Bound = OffsetSpec | Mapping[int, OffsetSpec] | Mapping[TopicPartition, OffsetSpec]
"""A bound: text for ``parse_place``, an offset, -N (the last N), a datetime; or these by partition or (topic,
partition).
"""
PLACES = "earliest, latest, an offset, -N for the last N, or a time like 2026-01-31T12:00 (UTC unless it has a zone)"


def parse_place(name: str, text: str) -> OffsetSpec:
    """Return the place in a topic that ``text`` stands for: ``earliest``, ``latest``, a number, or a time in UTC.

    ``now`` is the same as ``latest``, the end at the time of the request. Raises SettingError, which begins with
    ``name``.
    """
    word = text.strip()
    if word.lower() in ("earliest", "latest", "now"):
        return "earliest" if word.lower() == "earliest" else "latest"
    if word.removeprefix("-").isascii() and word.removeprefix("-").isdigit():
        return int(word)
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        raise SettingError(f"{name} {text!r}: it is not a place in a topic; write {PLACES}") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class ReadBounds(NamedTuple):
    """The range to read of one partition: ``end`` is None for no end; ``sure`` means that the user gave the offset."""

    meta: TopicMeta
    partition: int
    offset: int
    sure: bool
    end: int | None


def spans(
    transport: Transport, metas: Sequence[TopicMeta], start: Bound, end: Bound | None
) -> dict[TopicPartition, ReadBounds]:
    """Return the bounds of each partition. A mapping as ``start`` selects the partitions, as ``end`` it bounds them."""
    found: dict[TopicPartition, ReadBounds] = {}
    for meta in metas:
        for part in meta.partitions:
            place = (meta.name, part.number)
            begin = _resolve_bound(start, place)
            if begin is None:
                continue
            until = None if end is None else _resolve_bound(end, place)
            offset = resolve_offset(transport, meta, part, begin)
            sure = begin not in ("earliest", "latest") and not (isinstance(begin, int) and begin < 0)
            stop = None if until is None else resolve_offset(transport, meta, part, until)
            if stop is not None:
                require_order(meta, part, offset, stop, is_named=_is_named(begin) and _is_named(until))
            found[place] = ReadBounds(meta, part.number, offset, sure, stop)
    if isinstance(start, Mapping) and len(found) < len(start):
        raise _missing_partition_error(metas, [place for place in start if not _is_in(place, found)])
    return found


def _is_in(place: int | TopicPartition, found: Mapping[TopicPartition, ReadBounds]) -> bool:
    return place in found if isinstance(place, tuple) else any(number == place for _, number in found)


def _missing_partition_error(metas: Sequence[TopicMeta], missing: Sequence[int | TopicPartition]) -> LocalError:
    named = " and ".join(f"{place[1]} of {place[0]!r}" if isinstance(place, tuple) else str(place) for place in missing)
    there = ", ".join(
        f"topic {meta.name!r} has " + (f"0 to {len(meta.partitions) - 1}" if len(meta.partitions) > 1 else "0 alone")
        for meta in metas
    )
    many = len(missing) > 1
    return LocalError(f"partition{'s' * many} {named} {'do' if many else 'does'} not exist; {there}")


def resolve_offset(transport: Transport, meta: TopicMeta, part: PartitionMeta, where: OffsetSpec) -> int:
    """Return the offset that ``where`` stands for in a partition. Raises SettingError for an unknown word."""
    if isinstance(where, str):
        where = parse_place("start or end", where)
    if isinstance(where, str):
        return part.first_offset if where == "earliest" else part.end_offset
    if isinstance(where, datetime):
        if where.tzinfo is None:
            raise SettingError(f"{where} has no time zone; pass one, e.g. datetime.now(UTC)")
        return transport.offset_at(meta.name, part.number, (where - EPOCH) // timedelta(microseconds=1))
    if isinstance(where, bool) or not isinstance(where, int):
        raise SettingError(f"invalid start or end {where!r}; {_PLACES}")
    return where if where >= 0 else max(part.first_offset, part.end_offset + where)


_PLACES = "use 'earliest', 'latest', an offset, -N for the last N, a datetime, or one of these by partition"


def _is_named(place: object) -> bool:
    """Return whether a place is an offset or a time, and not a word whose meaning changes with the topic."""
    return isinstance(place, datetime) or (isinstance(place, int) and place >= 0)


def require_order(meta: TopicMeta, part: PartitionMeta, start: int, end: int, *, is_named: bool) -> None:
    """Raise SettingError if a range begins after its end, and the user gave both (``is_named``)."""
    if is_named and start > end:
        raise SettingError(
            f"topic {meta.name!r}, partition {part.number}: the range begins at offset {start} and ends before it, at "
            f"offset {end}; name an end after the start"
        )


def _resolve_bound(bound: Any, place: TopicPartition) -> OffsetSpec | None:
    found: OffsetSpec | None = bound
    if isinstance(bound, Mapping):
        found = bound.get(place, bound.get(place[1]))
    return parse_place("start or end", found) if isinstance(found, str) else found
