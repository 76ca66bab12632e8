"""Options of streams and topics, which clients set since 0.11 (iggy-current.md B6)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from ...broker.core.settings import TopicSettings
from ...dialects.iggy.classic.errors import StatusError
from ...dialects.iggy.current import options
from ...dialects.iggy.current.options import Option, Options
from .topic_bounds import RETENTION_MAX, divide_bound

UNCOMPRESSED, GZIP = 1, 2
_BOUNDS: Final = frozenset({"message_expiry", "max_topic_size"})
"""Bounds of a topic, the options that have an effect here."""
_UPDATABLE: Final = _BOUNDS | {"compression_algorithm"}
"""Options that an update of a topic may have (iggy_common 0.11: UPDATABLE_TOPIC_OPTION_KEYS)."""


def refuse_options(given: Options | None, what: str) -> None:
    """Raise a StatusError for any option of a kind of things that has none, such as streams."""
    for key in given or ():
        raise StatusError(options.UNSUPPORTED_KEY, f"{what} have no option {key!r}")


def refuse_lasting_options(given: Options) -> None:
    """Raise a StatusError for an option that cannot be changed after creation: the topic's segments depend on it."""
    for key in given:
        if key not in _UPDATABLE:
            raise StatusError(
                options.UNSUPPORTED_KEY,
                f"option {key[:64]!r}: not one that an update of a topic changes; use {', '.join(sorted(_UPDATABLE))}",
            )


def merge_options(before: TopicSettings, given: Options, partitions_count: int, segment_bytes: int) -> TopicSettings:
    """Return the settings of a topic with these options; those without effect here are kept as they were set.

    ``segment_bytes`` is the size of the broker's segments. Raises StatusError for a topic bound below that size, or
    below the segment size in the topic's own options.
    """
    typed = options.to_topic_options(given)
    _require_whole_segment(typed, find_options(before), segment_bytes)
    changed: dict[str, Any] = {}
    if "message_expiry" in typed:
        expiry = options.number_of(typed, "message_expiry")
        changed["retention_age_us"] = None if expiry is None else min(expiry, RETENTION_MAX)
    kept = dict(before.inert_configs or {})
    kept |= {key: options.show_option(option) for key, option in typed.items() if key not in _BOUNDS}
    if "max_topic_size" in typed:
        changed |= divide_bound(options.number_of(typed, "max_topic_size"), partitions_count, kept)
    elif kept:
        changed["inert_configs"] = kept
    return before.merge(changed)


def _require_whole_segment(given: Options, kept: Options, segment_bytes: int) -> None:
    size_bytes = options.number_of(given, "max_topic_size")
    least_bytes = options.number_of({**kept, **given}, "segment_size") or segment_bytes
    if size_bytes is not None and size_bytes < least_bytes:
        raise StatusError(
            options.INVALID_TOPIC_SIZE,
            f"max_topic_size {size_bytes}: smaller than a segment; use {least_bytes} bytes or more",
        )


def find_options(settings: TopicSettings) -> dict[str, Option]:
    """Return the options that clients have set for the topic, without its bounds."""
    kept = settings.inert_configs
    found: dict[str, Option] = {}
    if not kept:
        return found
    for key in options.TOPIC_OPTIONS:
        if key in kept and key not in _BOUNDS:
            # the setting takes any text, and one bad text must not hide the topic
            with suppress(StatusError):
                found[key] = options.parse_option(key, kept[key])
    return found


def find_compression(given: Options) -> int:
    """Return the compression that clients see, by the options of a topic; nothing is compressed here."""
    algorithm = given.get("compression_algorithm")
    return GZIP if algorithm is not None and algorithm.value.lower() == b"gzip" else UNCOMPRESSED
