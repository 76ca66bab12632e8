"""Truncation detection for servers that report only the end of each leader epoch (Kafka OffsetForLeaderEpoch)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from .interface import TopicMeta, Transport


@runtime_checkable
class EpochQueryTransport(Protocol):
    """A transport whose servers report the end of an epoch."""

    def epoch_ends(self, epochs: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
        """Return the present end of the log that was written under an epoch or an earlier one, from the servers.

        Both are by topic and partition. The end is 0 if the log does not know the epoch: it is another log. Partitions
        whose servers do not respond are left out.
        """
        ...  # fmt: skip


def fill_epochs(transport: Transport, meta: TopicMeta, epochs: Mapping[int, int]) -> TopicMeta:
    """Return the topic with ``PartitionMeta.epochs`` for a reader that read partitions under ``epochs`` (0: unknown).

    Servers are asked only about partitions whose epoch has changed, and only if the transport does not know epochs by
    itself.
    """
    (filled,) = fill_epochs_of_all(transport, [meta], {meta.name: epochs})
    return filled


def fill_epochs_of_all(
    transport: Transport, metas: Sequence[TopicMeta], epochs: Mapping[str, Mapping[int, int]]
) -> list[TopicMeta]:
    """Return the topics as ``fill_epochs`` does, with ``epochs`` by topic, and one request for all of a server."""
    if not isinstance(transport, EpochQueryTransport):
        return list(metas)
    older = {
        (meta.name, part.number): epoch
        for meta in metas
        for part in meta.partitions
        # epochs that exist already were filled in before
        if not part.epochs and 0 < (epoch := epochs.get(meta.name, {}).get(part.number, 0)) != part.epoch
    }
    ends = transport.epoch_ends(older) if older else {}
    return [_with_ends(meta, older, ends) for meta in metas] if ends else list(metas)


def _with_ends(meta: TopicMeta, older: Mapping[tuple[str, int], int], ends: Mapping[tuple[str, int], int]) -> TopicMeta:
    parts = []
    for part in meta.partitions:
        place = meta.name, part.number
        if place in ends:
            # a log that began anew counts its epochs anew
            now = max(part.epoch, older[place] + 1)
            part = replace(part, epochs=((now, ends[place]),))
        parts.append(part)
    return replace(meta, partitions=tuple(parts))
