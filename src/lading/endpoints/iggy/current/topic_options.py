"""Options of streams and topics for clients of the current Iggy, and refusals (iggy-current.md B6)."""

from __future__ import annotations

from typing import Any, Final

from ....broker.core.settings import TopicSettings
from ....dialects.iggy_current import limits, options
from ....dialects.iggy_current.errors import StatusError
from ....dialects.iggy_current.options import Options
from ....model.errors import Reason, Refusal

RETENTION_MAX: Final = (1 << 63) - 1
"""Settings of topics are signed numbers of 64 bits; Iggy's are unsigned."""


def refuse_partitions(count: int) -> None:
    """Raise the Refusal of more partitions than a topic may have."""
    raise Refusal(Reason.TOO_MANY_PARTITIONS, f"{count} partitions at once; {limits.PARTITIONS_MAX} are possible")


def refuse_options(given: Options, what: str) -> None:
    """Raise a StatusError for any option of what has none."""
    for key in given:
        raise StatusError(options.UNSUPPORTED_KEY, f"{what} have no option {key!r}")


def merge_options(before: TopicSettings, given: Options, partitions_count: int) -> TopicSettings:
    """Return the settings of a topic with these options.

    Iggy bounds a topic, Lading each partition: the bytes are divided among them.
    """
    options.check_topic_options(given)
    changed: dict[str, Any] = {}
    if "message_expiry" in given:
        expiry = options.number_of(given, "message_expiry")
        changed["retention_age_us"] = None if expiry is None else min(expiry, RETENTION_MAX)
    if "max_topic_size" in given:
        size = options.number_of(given, "max_topic_size")
        changed["retention_bytes"] = (
            None if size is None else max(min(size, RETENTION_MAX) // max(partitions_count, 1), 1)
        )
    return before.merge(changed)
