"""Positions of consumers as offsets of Kafka groups: the cluster has them, for all gateways and for Kafka's own tools.

A position that was committed or looked up in the last ``CURRENT_S`` is used without a lookup, for consumers that keep
polling; an older one is looked up again (``NotLoaded``), as another gateway may have moved it.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ..broker.core.pending_result import PendingResult
from ..broker.core.position import StoredPosition
from ..broker.core.positions import Positions
from ..broker.iggy.consumer import IGGY, IggyConsumerKind
from ..broker.native.groups import NATIVE
from ..model.errors import LadingError, NotLoaded, Reason, Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..broker.core.counters import Counters
    from ..broker.core.position import PositionKey
    from ..broker.core.topology import Partition, Topic
    from ..log.catalog import Catalog
    from .group_offsets import GroupOffsets
    from .log import Loaded

LOG: Final = logging.getLogger("lading.store")
CURRENT_S: Final = 0.1
"""How long a position is used before the cluster is asked again."""
CONSUMER_PREFIX: Final = f"{IggyConsumerKind.CONSUMER.value}/"
"""Prefix of the names of Iggy's consumers that are not in a group."""
KNOWN_MAX: Final = 1 << 14
"""Limit of positions in memory; beyond it those that would be looked up again are dropped."""
LOOKS_MAX: Final = 4
"""At each change, at most this many positions are checked for one that can be dropped."""


class _KafkaForm(NamedTuple):
    """How positions of a protocol are kept as offsets of a Kafka group."""

    group: str
    """The group's name, a format with the topic and the consumer."""
    next_after: int
    """How far the next message, which is Kafka's position, is after the position of the protocol."""


_FORMS: Final[Mapping[str, _KafkaForm]] = {
    # Iggy's consumers are numbered within a topic, and Iggy stores the offset that was consumed last
    IGGY: _KafkaForm("iggy.{topic.stream.name}.{topic.name}.{consumer}", next_after=1),
    NATIVE: _KafkaForm("lading.{consumer}", next_after=0),
}


@dataclass(slots=True, eq=False)
class _PositionRecord:
    """The gateway's own record of one position; the value of the position is on the partition."""

    current_until_s: float = 0.0
    changes_left: int = 0
    """Number of changes that the cluster has not acknowledged; until then the value here counts."""
    confirmations: list[PendingResult[None]] = field(default_factory=list)
    loads: list[Loaded] | None = None
    """Callbacks of a lookup in progress."""


Place = tuple["Partition", "PositionKey"]


class ClusterPositions(Positions):
    """Positions of a gateway's clients. Threads: the event loop alone."""

    def __init__(
        self,
        catalog: Catalog,
        counters: Counters,
        flush_us: int,
        call_at_end_of_pass: Callable[[Callable[[], None]], None],
        offsets: GroupOffsets,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(catalog, counters, flush_us, call_at_end_of_pass)
        self._offsets = offsets
        self._clock = clock
        self._known: OrderedDict[Place, _PositionRecord] = OrderedDict()
        self._has_failed = False
        self.find_group: Callable[[Topic, PositionKey], str | None] = lambda topic, key: None
        """Returns the Kafka group of a group of Iggy, which has its name there instead of its number."""

    def load(self, topics: Sequence[Topic]) -> None:
        """Load nothing: positions are looked up when they are needed."""

    def find(self, partition: Partition, key: PositionKey) -> StoredPosition | None:
        """Return a position, or None if none is stored. Raises NotLoaded."""
        known = self._known.get((partition, key))
        if known is None or not self._is_current(known):
            raise NotLoaded(self._look_up(partition, key))
        return partition.positions.get(key)

    def store(self, partition: Partition, key: PositionKey, position: StoredPosition) -> None:
        """Replace a position; here at once, in the cluster soon (``confirm``)."""
        partition.positions[key] = position
        group, offset = self._name_group(partition.topic, key), position.offset + _get_next_after(key)
        self._offsets.store(group, _to_kafka_place(partition), offset, self._begin_change(partition, key))

    def remove(self, topic: Topic, key: PositionKey) -> None:
        """Forget a consumer of one topic."""
        for partition in topic.partitions:
            self.remove_from(partition, key)

    def remove_from(self, partition: Partition, key: PositionKey) -> None:
        """Forget a consumer in one partition."""
        partition.positions.pop(key, None)
        group = self._name_group(partition.topic, key)
        self._offsets.delete(group, _to_kafka_place(partition), self._begin_change(partition, key))

    def confirm(self, partition: Partition, key: PositionKey) -> PendingResult[None] | None:
        """Return a result that is done when the cluster has the last change of a position, or None if it has it now."""
        known = self._known.get((partition, key))
        if known is None or not known.changes_left:
            return None
        pending: PendingResult[None] = PendingResult()
        known.confirmations.append(pending)
        return pending

    def look_up_again(self, partition: Partition, key: PositionKey) -> None:
        """Have a position looked up when it is needed next: a member at another gateway may have stored it."""
        known = self._known.get((partition, key))
        if known is not None:
            known.current_until_s = 0.0

    def on_partition_deleted(self, partition: Partition) -> None:
        """Drop its positions; the cluster deletes them by itself."""
        partition.positions.clear()

    def on_topic_deleted(self, topic: Topic) -> None:
        """Drop the positions of a deleted topic."""
        for place in [place for place in self._known if place[0].topic is topic]:
            del self._known[place]

    def flush_some(self) -> bool:
        """Return False: nothing waits for the catalog."""
        return False

    def _name_group(self, topic: Topic, key: PositionKey) -> str:
        return self.find_group(topic, key) or to_kafka_group(topic, key)

    def _is_current(self, known: _PositionRecord) -> bool:
        return known.changes_left > 0 or self._clock() < known.current_until_s

    # -- responses of the cluster

    def _begin_change(self, partition: Partition, key: PositionKey) -> Callable[[LadingError | None], None]:
        known = self._known.setdefault((partition, key), _PositionRecord())
        known.changes_left += 1
        return partial(self._finish_change, partition, key, known)

    def _finish_change(
        self, partition: Partition, key: PositionKey, known: _PositionRecord, error: LadingError | None
    ) -> None:
        known.changes_left -= 1
        known.current_until_s = 0.0 if error is not None else self._clock() + CURRENT_S
        if error is not None and not self._has_failed:
            LOG.warning("positions cannot be stored in the cluster, consumers may repeat messages: %s", error)
        self._has_failed = error is not None
        if known.changes_left and error is None:
            return
        if error is None:
            self._counters.positions_written += 1
        confirmations, known.confirmations = known.confirmations, []
        for pending in confirmations:
            if error is None:
                pending.finish(None)
            else:
                pending.refuse(_to_refusal(partition, error))
        self._limit_known()

    def _look_up(self, partition: Partition, key: PositionKey) -> Callable[[Loaded], None]:
        known = self._known.setdefault((partition, key), _PositionRecord())
        if known.loads is None:
            known.loads = []
            self._offsets.fetch(
                self._name_group(partition.topic, key), _to_kafka_place(partition),
                partial(self._finish_lookup, partition, key, known),
            )  # fmt: skip

        def add(callback: Loaded) -> None:
            if known.loads is None:
                callback(None)
            else:
                known.loads.append(callback)

        return add

    def _finish_lookup(
        self,
        partition: Partition,
        key: PositionKey,
        known: _PositionRecord,
        offset: int | None,
        error: LadingError | None,
    ) -> None:
        callbacks, known.loads = known.loads or [], None
        if error is None and not known.changes_left:
            known.current_until_s = self._clock() + CURRENT_S
            stored = None if offset is None else offset - _get_next_after(key)
            if stored is None or stored < 0:
                partition.positions.pop(key, None)
            else:
                partition.positions[key] = StoredPosition(stored)
        for callback in callbacks:
            callback(None if error is None else _to_refusal(partition, error))
        self._limit_known()

    def _limit_known(self) -> None:
        """Drop some positions that have been known too long; each change checks few, as 20,000 may be
        current at a time.
        """
        for _ in range(LOOKS_MAX):
            if len(self._known) <= KNOWN_MAX:
                return
            (partition, key), known = self._known.popitem(last=False)
            if self._is_current(known) or known.loads is not None:
                # checked again after all others
                self._known[partition, key] = known
            else:
                partition.positions.pop(key, None)


def to_kafka_group(topic: Topic, key: PositionKey) -> str:
    """Return the Kafka group whose offsets are the positions of a consumer."""
    return _FORMS[key.protocol].group.format(topic=topic, consumer=key.consumer)


def _get_next_after(key: PositionKey) -> int:
    return _FORMS[key.protocol].next_after


def _to_kafka_place(partition: Partition) -> tuple[str, int]:
    return partition.topic.flat_name, partition.number


def _to_refusal(partition: Partition, error: LadingError) -> Refusal:
    if isinstance(error, Refusal):
        return error
    return Refusal(
        Reason.STOPPING,
        f"positions in partition {partition}: the Kafka cluster does not respond as it should ({error}); retry later",
    )
