"""Options of streams and topics for clients of the current Iggy, and refusals (iggy-current.md B6)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from ....broker.core.settings import TopicSettings
from ....dialects.iggy_current import limits, options
from ....dialects.iggy_current.errors import StatusError
from ....dialects.iggy_current.options import Option, Options
from ....model.errors import Reason, Refusal
from ..topic_bounds import RETENTION_MAX, divide_bound

INVALID_PARTITIONS_COUNT: Final = 2019
_BOUNDS: Final = frozenset({"message_expiry", "max_topic_size"})
"""Options with an effect here."""


def refuse_partitions(count: int) -> None:
    """Raise the Refusal of more partitions than a topic may have."""
    raise Refusal(Reason.TOO_MANY_PARTITIONS, f"{count} partitions at once; {limits.PARTITIONS_MAX} are possible")


def refuse_options(given: Options, what: str) -> None:
    """Raise a StatusError for any option of what has none."""
    for key in given:
        raise StatusError(options.UNSUPPORTED_KEY, f"{what} have no option {key!r}")


def refuse_count(count: int, partitions_count: int) -> None:
    """Raise the StatusError of deleting more partitions than a topic has."""
    raise StatusError(INVALID_PARTITIONS_COUNT, f"a topic of {partitions_count} partitions cannot lose {count}")


def merge_options(before: TopicSettings, given: Options, partitions_count: int) -> TopicSettings:
    """Return the settings of a topic with these options; those without effect here are kept as they were set."""
    typed = options.to_topic_options(given)
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


def find_options(settings: TopicSettings) -> dict[str, Option]:
    """Return the options of a topic that its clients have set, without its bounds."""
    kept = settings.inert_configs or {}
    found: dict[str, Option] = {}
    for key in options.TOPIC_OPTIONS:
        if key in kept and key not in _BOUNDS:
            # the setting takes any text, and one bad text must not hide the topic
            with suppress(StatusError):
                found[key] = options.parse_option(key, kept[key])
    return found
