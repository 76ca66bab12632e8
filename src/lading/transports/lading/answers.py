"""Responses of the admin endpoint, parsed: the description of a topic, and messages with the facts in their headers."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from ...chunk.runs import runs
from ..fetched import FetchResult, missing
from ..interface import PartitionMeta, TopicMeta
from .http import HttpResponse


def read_topic(row: dict[str, Any]) -> TopicMeta:
    """Return the topic that a row of ``GET /topics`` describes."""
    return TopicMeta(
        row["stream"], row["topic"], row["name"], bytes.fromhex(row["id"]),
        tuple(
            PartitionMeta(
                part["partition"], part["first_offset"], part["stable_end"], part["epoch"],
                tuple((epoch, first) for epoch, first in part["epochs"]), part["size_bytes"],
            )
            for part in row["partitions"]
        ),
        row["settings"],
    )  # fmt: skip


class PartitionFacts(NamedTuple):
    """Facts of a partition in the headers of a response with messages."""

    end_offset: int
    first_offset: int
    last_stable_offset: int
    topic_id: bytes
    epoch: int
    epochs: tuple[tuple[int, int], ...]


def read_facts(answer: HttpResponse) -> PartitionFacts:
    """Return what the headers of a response say of its partition."""
    headers = answer.headers
    return PartitionFacts(
        int(headers["lading-end-offset"]),
        int(headers["lading-first-offset"]),
        int(headers["lading-stable-end"]),
        bytes.fromhex(headers["lading-topic-id"]),
        int(headers["lading-epoch"]),
        tuple(read_pairs(answer, "lading-epochs")),
    )


def read_pairs(answer: HttpResponse, header: str) -> list[tuple[int, int]]:
    """Return the pairs of numbers in a header, such as the ranges of aborted transactions."""
    return [(one, other) for one, other in json.loads(answer.headers[header])]


def read_fetched(topic: str, partition: int, offset: int, answer: HttpResponse) -> FetchResult:
    """Return what was read of a partition from ``offset`` on."""
    facts = read_facts(answer)
    region = np.frombuffer(answer.content, np.uint8)
    chunks = runs(region, 0, region.size) if region.size else []
    end = max(offset, facts.end_offset)
    return FetchResult(
        topic,
        partition,
        chunks,
        end_offset=end,
        first_offset=facts.first_offset,
        last_stable_offset=facts.last_stable_offset,
        topic_id=facts.topic_id,
        epoch=facts.epoch,
        epochs=facts.epochs,
        hidden=[(first, end, state) for first, end, state in json.loads(answer.headers["lading-hidden"])],
        aborted=read_pairs(answer, "lading-aborted"),
        damaged=missing(chunks, max(offset, facts.first_offset), end),
    )
