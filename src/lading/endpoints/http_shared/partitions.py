"""The partition that a path names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...model.errors import Reason, Refusal
from .routing import Parameters, parse_number

if TYPE_CHECKING:
    from ...broker.broker import Broker
    from ...broker.core.topology import Partition

PARTITION_MAX: Final = (1 << 31) - 1


def partition_of(broker: Broker, path: Parameters) -> Partition:
    """Return the partition that ``stream``, ``topic`` and ``partition`` of a path name.

    Raises Refusal: malformed if no partition can have such a number, not found if this topic has none of that number.
    """
    number = parse_partition(path["partition"])
    return broker.topology.topic(path["stream"], path["topic"]).partition(number)


def parse_partition(text: str) -> int:
    """Return the number of a partition, counted from 0; raises Refusal if ``text`` is not a number within bounds."""
    number = parse_number(text, PARTITION_MAX)
    if number is None:
        raise Refusal(Reason.MALFORMED, f"partition {text[:40]!r}: invalid; give a number from 0 to {PARTITION_MAX}")
    return number
