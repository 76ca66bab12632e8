"""``startingOffsets`` and ``endingOffsets``: from what the user wrote to a position per partition."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from ...client.read_bounds import parse_place, require_order, resolve_offset
from ...model.errors import SettingError
from ...transports.interface import PartitionMeta, TopicMeta, Transport
from .offsets import LAG, PartitionOffset, PartitionOffsets, to_partition_offset

Word = Literal["earliest", "latest"]
OffsetsOption = Word | int | Mapping[str, Any]
"""A word, an offset of every partition (-N for the last N), or a document of positions or of a point in time."""
WORDS: tuple[Word, ...] = ("earliest", "latest")
KAFKA_WORDS: Mapping[int, Word] = {-2: "earliest", -1: "latest"}
"""The numbers that Spark's Kafka connector has for them."""
EXAMPLES = (
    'earliest, latest, 4711, 2026-01-31T12:00 (UTC), {"0": 4711, "1": "latest"} or {"timestamp": '
    '"2026-01-31T12:00:00Z"}; '
    "what a checkpoint or manifest holds may be copied as it is"
)


def parse_offsets(option: str, text: str) -> OffsetsOption:
    """Parse an option's value: what ``parse_place`` takes, or a document. Raises SettingError that names the option."""
    word = text.strip()
    if not word.startswith(("{", "[")):
        try:
            place = parse_place(option, word)
        except SettingError:
            raise SettingError(f"{option} is {text!r}; it takes {EXAMPLES}") from None
        if isinstance(place, datetime):
            return {"timestamp": place.isoformat()}
        return place if isinstance(place, int) else "earliest" if place == "earliest" else "latest"
    try:
        value = json.loads(word)
    except ValueError:
        value = None
    if not isinstance(value, dict) or not value:
        raise SettingError(f"{option} is {text!r}; it takes {EXAMPLES}")
    return value


def resolve_offsets(
    option: str, value: OffsetsOption, transport: Transport, meta: TopicMeta, other: Word
) -> PartitionOffsets:
    """Return the positions that ``value`` means in the topic as it is now; partitions it omits are at ``other``."""
    if isinstance(value, str | int):
        return {
            part.number: to_partition_offset(meta, part, resolve_offset(transport, meta, part, value))
            for part in meta.partitions
        }
    if set(value) == {"timestamp"}:
        at_us = instant_us(option, value["timestamp"])
        return {
            part.number: to_partition_offset(meta, part, transport.offset_at(meta.name, part.number, at_us))
            for part in meta.partitions
        }
    named = _for_topic(option, value, meta)
    unknown = sorted(set(named) - {str(part.number) for part in meta.partitions})
    if unknown:
        raise SettingError(
            f"{option} names partition {', '.join(unknown)}, but topic {meta.name!r} has "
            f"0 to {len(meta.partitions) - 1}; leave it out"
        )
    return {part.number: _mark(option, named.get(str(part.number), other), meta, part) for part in meta.partitions}


def require_ordered_range(
    starting: OffsetsOption, ending: OffsetsOption, meta: TopicMeta, start: PartitionOffsets, end: PartitionOffsets
) -> None:
    """Raise SettingError if a range that the user named begins after its end; ``earliest`` and ``latest`` move."""
    is_named = not isinstance(starting, str) and not isinstance(ending, str)
    if isinstance(starting, Mapping) and isinstance(ending, Mapping) and set(starting) == set(ending) == {"timestamp"}:
        first, last = (instant_us("starting", value["timestamp"]) for value in (starting, ending))
        if first > last:
            raise SettingError(
                f"topic {meta.name!r}: the range begins at {starting['timestamp']} and ends before it, at "
                f"{ending['timestamp']}; name an end after the start"
            )
    for part in meta.partitions:
        if part.number in start and part.number in end:
            require_order(meta, part, start[part.number].offset, end[part.number].offset, is_named=is_named)


def _for_topic(option: str, value: Mapping[str, Any], meta: TopicMeta) -> Mapping[str, Any]:
    """Return the partitions' part of a document that may be headed by the topic's name."""
    value = {key: mark for key, mark in value.items() if key != LAG or not isinstance(mark, Mapping)}
    if all(isinstance(key, str) and key.isdigit() for key in value):
        return value
    for name in (meta.name, f"{meta.stream}.{meta.topic}", meta.topic):
        if isinstance(found := value.get(name), Mapping):
            return {number: mark for number, mark in found.items() if number != LAG}
    raise SettingError(f"{option} does not mention topic {meta.name!r}; it takes {EXAMPLES}")


def _mark(option: str, value: object, meta: TopicMeta, part: PartitionMeta) -> PartitionOffset:
    if isinstance(value, Mapping):
        return PartitionOffset.parse(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise SettingError(f"{option}: partition {part.number} is {value!r}; it takes an offset, earliest or latest")
    if isinstance(value, int) and value in KAFKA_WORDS:
        return to_partition_offset(meta, part, _offset_at_edge(part, KAFKA_WORDS[value]))
    if isinstance(value, int):
        if value < 0:
            raise SettingError(f"{option}: partition {part.number} has offset {value}; offsets count from 0")
        return to_partition_offset(meta, part, value)
    if value.lower() not in WORDS:
        raise SettingError(f"{option}: partition {part.number} is {value!r}; it takes an offset, earliest or latest")
    return to_partition_offset(
        meta, part, _offset_at_edge(part, "earliest" if value.lower() == "earliest" else "latest")
    )


def _offset_at_edge(part: PartitionMeta, word: Word) -> int:
    return part.first_offset if word == "earliest" else part.end_offset


def instant_us(option: str, value: object) -> int:
    """Microseconds since 1970 of a point in time: ISO 8601 text (UTC unless it says otherwise) or a number of them."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise SettingError(
            f"{option}: {value!r} is not a point in time; write 2026-01-31T12:00:00Z or microseconds since 1970"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
