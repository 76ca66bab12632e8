"""The partition that a path names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..model.errors import Reason, Refusal
from .routing import Parameters, parse_number

if TYPE_CHECKING:
    from ..broker.broker import Broker
    from ..broker.topology import Partition

PARTITION_MAX: Final = (1 << 31) - 1


def partition_of(broker: Broker, path: Parameters) -> Partition:
    """By ``stream``, ``topic`` and ``partition`` (from 0) of a path; Refusal where there is none."""
    topic = broker.topic(path["stream"], path["topic"])
    number = parse_number(path["partition"], PARTITION_MAX)
    if number is None:
        raise Refusal(Reason.PARTITION_NOT_FOUND, f"a partition is a number from 0, not {path['partition'][:40]!r}")
    return topic.partition(number)
