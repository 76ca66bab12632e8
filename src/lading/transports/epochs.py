"""Truncation detection for servers that report only the end of each leader epoch (Kafka OffsetForLeaderEpoch)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol, runtime_checkable

from .interface import TopicMeta, Transport


@runtime_checkable
class EpochQueryTransport(Protocol):
    """A transport whose servers are asked for the end of an epoch."""

    def epoch_ends(self, topic: str, epochs: Mapping[int, int]) -> Mapping[int, int]:
        """Ask the servers for the present end of the log written under an epoch or those before it, by partition.

        0 if the log does not know the epoch: it is another log. Partitions for which no server responds are left out.
        """
        ...  # fmt: skip


def fill_epochs(transport: Transport, meta: TopicMeta, epochs: Mapping[int, int]) -> TopicMeta:
    """Return the topic with ``PartitionMeta.epochs`` for a reader that read partitions under ``epochs`` (0: unknown).

    Servers are asked only about partitions whose epoch has changed, and only if the transport does not know epochs by
    itself.
    """
    if not isinstance(transport, EpochQueryTransport):
        return meta
    parts = {part.number: part for part in meta.partitions}
    older = {number: epoch for number, epoch in epochs.items() if number in parts and 0 < epoch != parts[number].epoch}
    ends = transport.epoch_ends(meta.name, older) if older else {}
    for number, end in ends.items():
        # a log that was begun anew counts its epochs anew
        now = max(parts[number].epoch, older[number] + 1)
        parts[number] = replace(parts[number], epochs=((now, end),))
    return replace(meta, partitions=tuple(parts.values())) if ends else meta
