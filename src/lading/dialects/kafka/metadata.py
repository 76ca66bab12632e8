"""The response to Metadata, encoded without the library: 1,000 partitions take a fifth of a millisecond instead of
seven (kafka.md 3).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from .fields import INT16, INT32, NO_TAGS, count, text
from .versions import METADATA, SERVED

FLEXIBLE: Final = SERVED[METADATA].flexible
_FIRST_WITH: Final = {
    "controller": 1, "cluster": 2, "throttle": 3, "offline": 5, "epoch": 7, "operations": 8, "topic id": 10,
    "error": 13,
}  # fmt: skip
OPERATIONS_FROM: Final = _FIRST_WITH["operations"]
"""The first version in which a client may request its operations on each topic."""
CLUSTER_OPERATIONS: Final = range(OPERATIONS_FROM, 11)
"""Versions in which it may request its operations on the cluster; later ones leave that to DescribeCluster."""
NOT_ASKED: Final = -(1 << 31)
"""The value for authorized operations that were not requested."""
_NOT_ASKED: Final = INT32.pack(NOT_ASKED)


class TopicMetadata(NamedTuple):
    """A topic in the response of a broker that leads all its partitions; ``epochs`` are the partitions' epochs, from
    partition 0 on.
    """

    error: int
    name: str | None
    topic_id: bytes
    epochs: Sequence[int] = ()
    operations: int = NOT_ASKED
    """Bit field of the client's operations on the topic."""
    is_internal: bool = False


class BrokerNode(NamedTuple):
    """The only broker of a cluster: its controller, and the leader of every partition."""

    id: int
    host: str
    port: int


def metadata_answer(
    version: int,
    correlation: int,
    cluster: str,
    broker: BrokerNode,
    topics: Sequence[TopicMetadata],
    operations: int = NOT_ASKED,
) -> bytes:
    """Return the whole frame of a response; ``operations``: bit field of the client's operations on the cluster."""
    flexible = version >= FLEXIBLE
    tags = NO_TAGS if flexible else b""
    out = [INT32.pack(correlation), tags]
    if version >= _FIRST_WITH["throttle"]:
        out.append(INT32.pack(0))
    out += count(1, flexible), INT32.pack(broker.id), text(broker.host.encode(), flexible), INT32.pack(broker.port)
    if version >= _FIRST_WITH["controller"]:
        out.append(text(None, flexible))
    out.append(tags)
    if version >= _FIRST_WITH["cluster"]:
        out.append(text(cluster.encode(), flexible))
    if version >= _FIRST_WITH["controller"]:
        out.append(INT32.pack(broker.id))
    out.append(count(len(topics), flexible))
    for topic in topics:
        # before version 12 a name cannot be null
        name = topic.name if topic.name is not None or version >= _NULL_NAMES else ""
        out += INT16.pack(topic.error), text(None if name is None else name.encode(), flexible)
        if version >= _FIRST_WITH["topic id"]:
            out.append(topic.topic_id)
        if version >= _FIRST_WITH["controller"]:
            out.append(b"\1" if topic.is_internal else b"\0")
        out += count(len(topic.epochs), flexible), _encode_partitions(version, broker.id, topic.epochs)
        if version >= OPERATIONS_FROM:
            out.append(_NOT_ASKED if topic.operations == NOT_ASKED else INT32.pack(topic.operations))
        out.append(tags)
    if version in CLUSTER_OPERATIONS:
        out.append(_NOT_ASKED if operations == NOT_ASKED else INT32.pack(operations))
    if version >= _FIRST_WITH["error"]:
        out.append(INT16.pack(0))
    out.append(tags)
    body = b"".join(out)
    return struct.pack(">i", len(body)) + body


_NULL_NAMES: Final = 12


def _encode_partitions(version: int, leader: int, epochs: Sequence[int]) -> bytes:
    rows = np.zeros(len(epochs), _partition_layout(version))
    rows["index"] = np.arange(len(epochs))
    if version >= _FIRST_WITH["epoch"]:
        rows["epoch"] = epochs
    for name in ("leader", "replica", "in sync"):
        rows[name] = leader
    one, none = (2, 1) if version >= FLEXIBLE else (1, 0)
    rows["replicas"] = rows["all in sync"] = one
    if version >= _FIRST_WITH["offline"]:
        rows["offline"] = none
    return rows.tobytes()


@cache
def _partition_layout(version: int) -> np.dtype[Any]:
    """Return the layout of a partition with one broker; the length of each list comes before its entries."""
    length = "u1" if version >= FLEXIBLE else ">i4"
    fields = [("error", ">i2"), ("index", ">i4"), ("leader", ">i4")]
    fields += [("epoch", ">i4")] * (version >= _FIRST_WITH["epoch"])
    fields += [("replicas", length), ("replica", ">i4"), ("all in sync", length), ("in sync", ">i4")]
    fields += [("offline", length)] * (version >= _FIRST_WITH["offline"])
    fields += [("tags", "u1")] * (version >= FLEXIBLE)
    return np.dtype(fields)
