"""Active producers and open transactions: ListTransactions, DescribeTransactions, DescribeProducers.

* ListTransactions 0-2. 1 by duration (KIP-994); 2 by a pattern of transactional ids (KIP-1152).
* DescribeTransactions 0 and DescribeProducers 0 (KIP-664).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...broker.kafka.topic_patterns import find_matching
from ...broker.kafka.transactional_producer import ProducerState, TransactionalProducer
from ...dialects.kafka.errors import TRANSACTIONAL_ID_NOT_FOUND, code_of
from ...dialects.kafka.versions import DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS
from ...model.errors import LadingError, Refusal
from ...runtime.clock import Dates
from ...runtime.turns import TurnCounter, Turns, collect_in_turns, finish_in_turns, sort_in_turns, take_turns
from ..base.services import now_us
from .handling import Answer, Context, Fields, Handler, Request, Session, rows_by_topic

if TYPE_CHECKING:
    from ...broker.core.topology import Partition

_DURATION_FROM: Final = 1
_PATTERN_FROM: Final = 2
_UNKNOWN: Final = -1
_STATES: Final = frozenset(ProducerState)


def handlers(context: Context) -> Mapping[int, Handler]:
    """ListTransactions, DescribeTransactions and DescribeProducers."""
    answers = _Handlers(context)
    return {
        LIST_TRANSACTIONS: answers.list,
        DESCRIBE_TRANSACTIONS: answers.describe,
        DESCRIBE_PRODUCERS: answers.writers,
    }


class _Handlers:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._producers = context.broker.producers

    def list(self, session: Session, request: Request) -> Answer:
        pattern = request.body.transactional_id_pattern if request.version >= _PATTERN_FROM else None
        return self._list_matching(request, pattern) if pattern else take_turns(self._list(request, None))

    async def _list_matching(self, request: Request, pattern: str) -> Fields:
        names = [one.row.name for one in self._producers.list_transactional()]
        try:
            found = await self._context.services.run_in_worker(1, 0, partial(find_matching, pattern), names)
        except Refusal as refusal:
            return {"error_code": code_of(refusal), "unknown_state_filters": [], "transaction_states": []}
        return await finish_in_turns(self._list(request, frozenset(found)))

    def _list(self, request: Request, names: Collection[str] | None) -> Turns[Fields]:
        body, turn = request.body, TurnCounter()
        states = yield from collect_in_turns(body.state_filters)
        ids = yield from collect_in_turns(body.producer_id_filters)
        unknown = yield from sort_in_turns(state for state in states if state not in _STATES)
        longer_us = body.duration_filter * 1000 if request.version >= _DURATION_FROM else _UNKNOWN
        now = now_us()
        rows = []
        for one in list(self._producers.list_transactional()):
            is_asked = (not states or one.state in states) and (not ids or one.row.id in ids)
            is_asked = is_asked and (names is None or one.row.name in names)
            if is_asked and (longer_us < 0 or now - one.begun_us > longer_us):
                state = one.state.value
                rows.append({"transactional_id": one.row.name, "producer_id": one.row.id, "transaction_state": state})
            if turn.is_over():
                yield
        return {"error_code": 0, "unknown_state_filters": unknown, "transaction_states": rows}

    def describe(self, session: Session, request: Request) -> Answer:
        return take_turns(self._describe(session, request))

    def _describe(self, session: Session, request: Request) -> Turns[Fields]:
        dates, rows, turn = self._context.broker.dates, [], TurnCounter()
        for name in request.body.transactional_ids:
            row = _describe_transaction(name, self._producers.find(name), dates)
            visible = [one for one in row["topics"] if self._context.may_describe(session.principal, one["topic"])]
            rows.append({**row, "topics": visible})
            if turn.is_over(1 + len(row["topics"])):
                yield
        return {"transaction_states": rows}

    def writers(self, session: Session, request: Request) -> Answer:
        return take_turns(self._describe_producers(request))

    def _describe_producers(self, request: Request) -> Turns[Fields]:
        return (yield from rows_by_topic(request.body.topics, "name", self._describe_partition, "partition_indexes"))

    def _describe_partition(self, name: str, number: int) -> Fields:
        try:
            partition = self._context.topics.find(name).partition(number)
        except LadingError as error:
            return {"partition_index": number, "error_code": code_of(error), "error_message": str(error)}
        return {
            "partition_index": number,
            "error_code": 0,
            "error_message": None,
            "active_producers": [
                {
                    "producer_id": one.identity.producer_id,
                    "producer_epoch": one.identity.epoch,
                    "last_sequence": one.last_sequence,
                    "last_timestamp": _UNKNOWN,
                    "coordinator_epoch": _UNKNOWN,
                    "current_txn_start_offset": _UNKNOWN if one.open_from is None else one.open_from,
                }
                for one in self._producers.writing(partition)
            ],
        }


def _describe_transaction(name: str, producer: TransactionalProducer | None, dates: Dates) -> Fields:
    if producer is None:
        return {
            "transactional_id": name,
            "error_code": TRANSACTIONAL_ID_NOT_FOUND,
            "transaction_state": "",
            "topics": [],
        }
    began = producer.state is not ProducerState.EMPTY
    return {
        "error_code": 0,
        "transactional_id": name,
        "transaction_state": producer.state.value,
        "transaction_timeout_ms": producer.row.timeout_us // 1000,
        "transaction_start_time_ms": dates.of(producer.begun_us) // 1000 if began else _UNKNOWN,
        "producer_id": producer.row.id,
        "producer_epoch": producer.row.epoch,
        "topics": _by_topic(producer.partitions),
    }


def _by_topic(partitions: Iterable[Partition]) -> list[dict[str, Any]]:
    rows: dict[str, list[int]] = {}
    for one in partitions:
        rows.setdefault(one.topic.flat_name, []).append(one.number)
    return [{"topic": name, "partitions": sorted(rows[name])} for name in sorted(rows)]
