"""WriteTxnMarkers: administrators end what a producer has open in a partition (KIP-664).

In a cluster the coordinators of transactions send it to the leaders of partitions; here both are one broker.

* WriteTxnMarkers 1-2. 1 tagged fields; 2 the version of transactions (KIP-1228).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any

from ...broker.core.pending_append import Append
from ...broker.core.pending_result import PendingResult
from ...broker.kafka.transactional_producer import ProducerIdAndEpoch
from ...dialects.kafka.errors import NONE, UNKNOWN_SERVER_ERROR, code_of
from ...dialects.kafka.versions import WRITE_TXN_MARKERS
from ...model.errors import Refusal
from ...runtime.turns import TurnCounter, Turns, take_turns
from ..base.services import now_us
from .handling import Answer, Context, Fields, Handler, Request, Session
from .pending_responses import complete_with


def handlers(context: Context) -> Mapping[int, Handler]:
    """WriteTxnMarkers."""
    return {WRITE_TXN_MARKERS: TransactionMarkers(context).write}


class TransactionMarkers:
    """Handler of one endpoint."""

    def __init__(self, context: Context) -> None:
        self._topology = context.broker.topology
        self._producers = context.broker.producers

    def write(self, session: Session, request: Request) -> Answer:
        return take_turns(self._write(request.body.markers))

    def _write(self, asked: list[Any]) -> Turns[Fields | Awaitable[Fields]]:
        """Return the response once all markers are on disk."""
        turn, now = TurnCounter(), now_us()
        markers: list[Fields] = []
        pending: list[tuple[Append, dict[str, Any]]] = []
        for one in asked:
            topics: list[Fields] = []
            for topic in one.topics:
                rows: list[dict[str, Any]] = []
                for number in topic.partition_indexes:
                    row = {"partition_index": number, "error_code": NONE}
                    rows.append(row)
                    try:
                        if (append := self._end(topic.name, number, one, now)) is not None:
                            pending.append((append, row))
                    except Refusal as refusal:
                        row["error_code"] = code_of(refusal)
                    except ValueError:
                        row["error_code"] = UNKNOWN_SERVER_ERROR
                    if turn.is_over():
                        yield
                topics.append({"name": topic.name, "partitions": rows})
                # also topics and markers without rows take time
                if turn.is_over():
                    yield
            if turn.is_over():
                yield
            markers.append({"producer_id": one.producer_id, "topics": topics})
        return complete_with(_when_done(pending), lambda _: {"markers": markers}, lambda error: {"markers": markers})

    def _end(self, topic: str, number: int, marker: Any, now: int) -> Append | None:
        """Write the end of the transaction. Raises ValueError for an impossible producer id or epoch, for which Kafka
        has no code.
        """
        partition = self._topology.resolve(topic).partition(number)
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            raise ValueError(f"producer {marker.producer_id}, epoch {marker.producer_epoch}")
        identity = ProducerIdAndEpoch(marker.producer_id, marker.producer_epoch)
        return self._producers.end_in_partition(partition, identity, bool(marker.transaction_result), now_us=now)


def _when_done(pending: list[tuple[Append, dict[str, Any]]]) -> PendingResult[None]:
    """Complete when all appends are done; a failed append leaves its code in its row."""
    answer: PendingResult[None] = PendingResult()
    left = len(pending)
    if not left:
        return PendingResult.of(None)

    def count_down(row: dict[str, Any], append: Append) -> None:
        nonlocal left
        left -= 1
        if append.error is not None:
            row["error_code"] = code_of(append.error)
        if not left:
            answer.finish(None)

    for append, row in pending:
        append.add_done_callback(partial(count_down, row))
    return answer
