"""The partition that a path names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model.errors import Reason, Refusal
from .routing import Parameters

if TYPE_CHECKING:
    from ..broker.broker import Broker
    from ..broker.topology import Partition


def partition_of(broker: Broker, path: Parameters) -> Partition:
    """By ``stream``, ``topic`` and ``partition`` (from 0) of a path; Refusal where there is none."""
    topic = broker.topic(path["stream"], path["topic"])
    text = path["partition"]
    if not text.isascii() or not text.isdigit():
        raise Refusal(Reason.PARTITION_NOT_FOUND, f"a partition is a number from 0, not {text!r}")
    return topic.partition(int(text))
