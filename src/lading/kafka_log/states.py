"""Message states over a cluster: a thread writes them to ``__lading_states`` and follows what other gateways write."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from threading import Condition, Thread
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import pyarrow as pa

from ..broker.core.states import States, find_changes
from ..dialects.kafka.commands import LATEST
from ..model.errors import LadingError, Reason, Refusal
from ..model.scan_request import ScanRequest
from ..runtime.turns import finish
from ..transports.kafka.offsets import list_offsets
from .refusals import refuse
from .state_records import (
    NO_RECORD,
    RANGES_MAX,
    STATES_TOPIC,
    BlockPlace,
    BlockRecord,
    StateRecords,
    StateTable,
    split_by_block,
)

if TYPE_CHECKING:
    from ..broker.core.states import Ranges
    from ..broker.core.topology import Partition
    from ..transports.kafka.transport import KafkaTransport

LOG: Final = logging.getLogger("lading.store")
LOOK_S: Final = 0.3
"""The interval of checks for states that other gateways wrote."""
TRIES_MAX: Final = 20
"""Another gateway may change the same block between our read and our write: then the change is made again on its
result.
"""
Done = Callable[[Refusal | None], None]


class ClusterStates(States):
    """Setting states at a gateway."""

    thread: StateThread

    def set_soon(
        self, partition: Partition, ranges: Ranges, state: int, *, done: Done, reason: str | None = None, now_us: int
    ) -> int:
        """Set states; ``done`` is called when the cluster has them and they are in effect here."""
        changed = finish(find_changes(partition, ranges, state))
        if not changed:
            done(None)
            return 0
        topic = partition.topic
        self.thread.submit(_Request(topic.flat_name, topic.uuid.hex(), partition.number, changed, state, done))
        return self._count_changes(partition, changed)

    def set(
        self, partition: Partition, ranges: Ranges, state: int, *, reason: str | None = None, now_us: int
    ) -> NoReturn:
        """Refuse: writing to the cluster takes a while."""
        refuse("dead letters")


class _Request(NamedTuple):
    topic: str
    topic_id: str
    partition: int
    ranges: Sequence[tuple[int, int]]
    state: int
    done: Done


class StateThread(Thread):
    """The thread. ``submit`` is for the event loop, which gets every callback."""

    def __init__(
        self,
        open_transport: Callable[[], KafkaTransport],
        post: Callable[[Callable[[], None]], None],
        table: StateTable,
    ) -> None:
        super().__init__(name="lading-states", daemon=True)
        self._transport = open_transport()
        self._post = post
        self._table = table
        self._records = StateRecords()
        self._read_to = 0
        self._changed = Condition()
        self._waiting: deque[_Request] = deque()
        self._is_ending = False
        self._problem: str | None = None

    def load(self) -> None:
        """Read all states; before the thread starts, so that no reader sees hidden messages."""
        self._table.take([(place, self._records.blocks.get(place, NO_RECORD)) for place in self._read()])

    def submit(self, request: _Request) -> None:
        """Write states."""
        with self._changed:
            self._waiting.append(request)
            self._changed.notify()

    def close(self, timeout_s: float) -> None:
        """Write the waiting states, and end."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        self.join(timeout_s)

    def run(self) -> None:
        """Follow the topic until the end."""
        while True:
            with self._changed:
                if not self._waiting and not self._is_ending:
                    self._changed.wait(LOOK_S)
                request = self._waiting.popleft() if self._waiting else None
                if request is None and self._is_ending:
                    break
            refusal: Refusal | None = None
            try:
                if request is None:
                    self._follow()
                else:
                    self._write(request)
                self._problem = None
            except Exception as error:
                refusal = self._report(error)
                if request is None:
                    time.sleep(LOOK_S)
            if request is not None:
                self._post(partial(request.done, refusal))
        self._transport.close()

    def _report(self, error: Exception) -> Refusal:
        if isinstance(error, Refusal):
            return error
        if self._problem is None:
            fault = None if isinstance(error, (LadingError, OSError)) else error
            LOG.warning("states of messages cannot be followed: %s", error, exc_info=fault)
        self._problem = str(error)
        return Refusal(Reason.STOPPING, f"states: the Kafka cluster does not respond ({error}); look, and try again")

    def _follow(self) -> None:
        if places := self._read():
            found = [(place, self._records.blocks.get(place, NO_RECORD)) for place in places]
            self._post(partial(self._table.take, found))

    def _write(self, request: _Request) -> None:
        """Write all blocks of a request; again if another gateway wrote the same number of a block first."""
        self._follow()
        parts = list(split_by_block(request.topic, request.partition, request.ranges))
        if self._records.ranges_count + len(parts) > RANGES_MAX:
            raise Refusal(
                Reason.REQUEST_TOO_LARGE,
                f"{self._records.ranges_count} ranges of messages are not available; at most {RANGES_MAX} may be: make "
                "some available, or delete topics",
            )
        for _ in range(TRIES_MAX):
            wanted: dict[BlockPlace, BlockRecord] = {}
            for place, first, end in parts:
                before = wanted.get(place, self._records.blocks.get(place, NO_RECORD))
                changed = before.change(request.topic_id, first, end, request.state)
                # one record for all parts of a block
                wanted[place] = replace(changed, serial=before.serial) if place in wanted else changed
            columns = {
                "key": pa.array([place.key for place in wanted], pa.binary()),
                "payload": pa.array([record.pack() for record in wanted.values()], pa.binary()),
            }
            self._transport.send(STATES_TOPIC, 0, pa.RecordBatch.from_pydict(columns))
            self._follow()
            parts = [part for part in parts if self._records.blocks.get(part[0]) != wanted[part[0]]]
            if not parts:
                return
        raise Refusal(Reason.STOPPING, "states of these messages are set by others again and again; try again")

    def _read(self) -> list[BlockPlace]:
        """Apply the records up to the end of the topic; return the blocks that changed."""
        end = list_offsets(self._transport.cluster, [(STATES_TOPIC, 0)], LATEST)[STATES_TOPIC, 0].offset
        request = ScanRequest(fields=frozenset({"key", "payload"}))
        changed: dict[BlockPlace, None] = {}
        while self._read_to < end:
            found = self._transport.fetch(STATES_TOPIC, 0, self._read_to)
            if found.end_offset <= self._read_to:
                raise LadingError(f"topic {STATES_TOPIC!r}: offset {self._read_to} cannot be read; check the cluster")
            for part in found.decode(request._replace(first=self._read_to)):
                keys, values = part.columns["key"].to_pylist(), part.columns["payload"].to_pylist()
                for key, value in zip(keys, values, strict=True):
                    if (place := self._records.apply(key, value)) is not None:
                        changed[place] = None
            self._read_to = found.end_offset
        return list(changed)
