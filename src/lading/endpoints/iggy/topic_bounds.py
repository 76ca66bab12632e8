"""Size bounds of topics: Iggy bounds a topic, Lading each of its partitions, so that the bytes are divided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ...broker.core.settings import TopicSettings

BOUND: Final = "max_topic_size"
"""The inert config that holds a bound as the client gave it, if its bytes do not divide evenly."""
RETENTION_MAX: Final = (1 << 63) - 1
"""The largest bound: settings of topics are signed numbers of 64 bits, Iggy's are unsigned."""


def divide_bound(
    size_bytes: int | None, partitions_count: int, inert_configs: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the settings of a topic with this bound, as ``TopicSettings.merge`` takes them; None is unlimited.

    ``inert_configs`` are the topic's present ones.
    """
    kept = {name: text for name, text in (inert_configs or {}).items() if name != BOUND}
    share = None
    if size_bytes:
        count = max(partitions_count, 1)
        share = min(max(size_bytes // count, 1), RETENTION_MAX)
        if share * count != size_bytes:
            kept[BOUND] = str(size_bytes)
    return {"retention_bytes": share, "inert_configs": kept or None}


def find_bound(settings: TopicSettings, partitions_count: int) -> int | None:
    """Return the bound of a topic as its client gave it, or that of all partitions together if it was changed since."""
    share, count = settings.retention_bytes, max(partitions_count, 1)
    if share is None:
        return None
    given = (settings.inert_configs or {}).get(BOUND, "")
    if given.isascii() and given.isdigit() and divide_bound(int(given), count)["retention_bytes"] == share:
        return int(given)
    return share * count
