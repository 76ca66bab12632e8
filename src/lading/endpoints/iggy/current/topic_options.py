"""What a client of the current Iggy may ask of streams and topics, and what is refused (iggy-current.md B6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ....broker.core.record_deletion import delete_before
from ....broker.core.settings import TopicSettings
from ....dialects.iggy_current import limits, options
from ....dialects.iggy_current.errors import StatusError
from ....dialects.iggy_current.options import Options
from ....model.errors import Reason, Refusal

if TYPE_CHECKING:
    from ....broker.core.topology import Topic

RETENTION_MAX: Final = (1 << 63) - 1
"""Settings of topics are signed numbers of 64 bits; Iggy's are unsigned."""


def refuse_partitions(count: int) -> None:
    """Raise the Refusal of more partitions than a topic may have."""
    raise Refusal(Reason.TOO_MANY_PARTITIONS, f"{count} partitions at once; {limits.PARTITIONS_MAX} are possible")


def refuse_new_name(name: str, wanted: str) -> None:
    """Raise a Refusal if a stream or topic is to be called otherwise."""
    if wanted != name:
        raise Refusal(
            Reason.FEATURE_UNAVAILABLE, f"{name!r} cannot be called {wanted!r}: streams and topics keep their names"
        )


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


def purge_topic(topic: Topic) -> None:
    """Delete all messages that can be seen; offsets go on, so that no stored one points at another message."""
    for partition in topic.partitions:
        delete_before(partition, partition.log.last_stable_offset)
