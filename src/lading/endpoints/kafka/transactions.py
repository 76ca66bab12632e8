"""Producer ids and transactions: InitProducerId to EndTxn, and positions that a transaction commits (kafka.md 3.3).

* InitProducerId 0-5. 2 tagged fields; 3 a producer may continue with its id and epoch (KIP-360); 4 PRODUCER_FENCED
  (KIP-588); 5 TRANSACTION_ABORTABLE (KIP-890).
* AddPartitionsToTxn 0-5, AddOffsetsToTxn 0-4, EndTxn 0-5. 2 PRODUCER_FENCED (KIP-588); 3 tagged fields; 4
  TRANSACTION_ABORTABLE (KIP-890), and AddPartitionsToTxn takes several transactions, from administrators alone, or
  only looks whether they have the partitions; EndTxn 5 gives the producer a new epoch (KIP-890).
* TxnOffsetCommit 0-5. 2 leader epoch; 3 member and generation of the group, checked (KIP-447), tagged fields; 4
  TRANSACTION_ABORTABLE; 5 begins the transaction by itself (KIP-890).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final

from ...broker.core.position import PositionKey, StoredPosition
from ...broker.core.topology import Partition
from ...broker.kafka.group import KAFKA
from ...broker.kafka.group_coordinator import MemberCall
from ...broker.kafka.transactional_producer import Caller, ProducerIdAndEpoch
from ...dialects.kafka import versions
from ...dialects.kafka.errors import (
    INVALID_REQUEST,
    NONE,
    OPERATION_NOT_ATTEMPTED,
    PRODUCER_FENCED,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTION_ABORTABLE,
    UNKNOWN_TOPIC,
    code_of,
)
from ...model.errors import Reason, Refusal
from ...runtime.turns import TurnCounter, Turns, take_turns
from ..base.services import now_us
from .handling import Answer, Context, Fields, Handler, Request, Session
from .offset_commits import durable, store_offsets
from .pending_responses import complete_with, coordinator_code

_FENCED_FROM: Final = {versions.INIT_PRODUCER_ID: 4, versions.TXN_OFFSET_COMMIT: versions.NEVER}
_FENCED_FROM_ELSE: Final = 2
"""From these versions on a fenced producer gets PRODUCER_FENCED; in earlier ones INVALID_PRODUCER_EPOCH."""
_ABORTABLE_FROM: Final = {versions.TXN_OFFSET_COMMIT: 4, versions.ADD_PARTITIONS_TO_TXN: 5}
"""From these versions on a producer may abort without an open transaction, and then continue."""
_MANY_TRANSACTIONS_FROM: Final = 4
_NEW_EPOCH_FROM: Final = 5
_BEGINS_FROM: Final = 5
"""From this version of TxnOffsetCommit on the request itself begins a transaction."""


def handlers(context: Context) -> Mapping[int, Handler]:
    """Return the handlers of this module."""
    transactions = Transactions(context)
    return {
        versions.INIT_PRODUCER_ID: transactions.init,
        versions.ADD_PARTITIONS_TO_TXN: transactions.add_partitions,
        versions.ADD_OFFSETS_TO_TXN: transactions.add_positions,
        versions.END_TXN: transactions.end,
        versions.TXN_OFFSET_COMMIT: transactions.commit_positions,
    }


class Transactions:
    """Handlers of one endpoint."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._producers = context.broker.producers
        self._groups = context.broker.coordinated_groups

    def init(self, session: Session, request: Request) -> Fields | Awaitable[Fields]:
        body = request.body
        name = body.transactional_id
        nobody = {"producer_id": -1, "producer_epoch": -1}
        if name == "":
            return {"error_code": INVALID_REQUEST, **nobody}
        known = None
        if request.version >= 3 and body.producer_id >= 0:
            known = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)

        def refused(error: Refusal) -> Fields:
            return {"error_code": _code_for(request, error), **nobody}

        try:
            answer = self._producers.init_producer_id(name, body.transaction_timeout_ms * 1000, known, now_us=now_us())
        except Refusal as refusal:
            return refused(refusal)
        return complete_with(
            answer,
            lambda identity: {
                "error_code": NONE,
                "producer_id": identity.producer_id,
                "producer_epoch": identity.epoch,
            },
            refused,
        )

    def add_partitions(self, session: Session, request: Request) -> Answer:
        if request.version >= _MANY_TRANSACTIONS_FROM:
            return take_turns(self._add_to_many(request))
        body = request.body
        caller = Caller(
            body.v3_and_below_transactional_id, body.v3_and_below_producer_id, body.v3_and_below_producer_epoch
        )
        return take_turns(self._add_to_one(request, caller))

    def _add_to_one(self, request: Request, caller: Caller) -> Turns[Fields]:
        rows = yield from self._add_partitions(request, caller, request.body.v3_and_below_topics, only_look=False)
        return {"results_by_topic_v3_and_below": rows}

    def _add_to_many(self, request: Request) -> Turns[Fields]:
        results: list[Fields] = []
        for one in request.body.transactions:
            caller = Caller(one.transactional_id, one.producer_id, one.producer_epoch)
            rows = yield from self._add_partitions(request, caller, one.topics, only_look=one.verify_only)
            results.append({"transactional_id": one.transactional_id, "topic_results": rows})
        return {"error_code": NONE, "results_by_transaction": results}

    def _add_partitions(
        self, request: Request, caller: Caller, topics: Sequence[Any], *, only_look: bool
    ) -> Turns[list[Fields]]:
        turn = TurnCounter()
        found: dict[tuple[str, int], Partition] = {}
        codes: dict[tuple[str, int], int] = {}
        for topic in topics:
            if turn.is_over():
                yield
            for number in topic.partitions:
                if turn.is_over():
                    yield
                try:
                    partition = self._context.topics.find(topic.name).partition(number)
                except Refusal as refusal:
                    codes[topic.name, number] = code_of(refusal)
                    continue
                if self._context.topics.is_internal(partition.topic):
                    codes[topic.name, number] = TOPIC_AUTHORIZATION_FAILED
                else:
                    found[topic.name, number] = partition
        for place, partition in found.items():
            # checked again: others had their turn meanwhile
            if not self._context.broker.topology.has_partition(partition):
                codes[place] = UNKNOWN_TOPIC
        code = OPERATION_NOT_ATTEMPTED if codes else NONE
        if not codes:
            try:
                if only_look:
                    self._producers.require_partitions(caller, found.values())
                else:
                    self._producers.add_partitions(caller, found.values(), now_us=now_us())
            except Refusal as refusal:
                code = _code_for(request, refusal)
        rows: list[Fields] = []
        for topic in topics:
            partitions = []
            for number in topic.partitions:
                error = codes.get((topic.name, number), code)
                partitions.append({"partition_index": number, "partition_error_code": error})
                if turn.is_over():
                    yield
            rows.append({"name": topic.name, "results_by_partition": partitions})
        return rows

    def add_positions(self, session: Session, request: Request) -> Fields:
        try:
            self._producers.add_offsets(_caller_of(request.body), now_us=now_us())
        except Refusal as refusal:
            return {"error_code": _code_for(request, refusal)}
        return {"error_code": NONE}

    def end(self, session: Session, request: Request) -> Fields | Awaitable[Fields]:
        caller, committed = _caller_of(request.body), bool(request.body.committed)
        if request.version >= _NEW_EPOCH_FROM:
            return self._end_with_new_epoch(request, caller, committed)
        try:
            answer = self._producers.end(caller, committed, now_us=now_us())
        except Refusal as refusal:
            return {"error_code": _code_for(request, refusal)}
        return complete_with(
            answer, lambda _: {"error_code": NONE}, lambda error: {"error_code": _code_for(request, error)}
        )

    def _end_with_new_epoch(self, request: Request, caller: Caller, committed: bool) -> Fields | Awaitable[Fields]:
        def refused(error: Refusal) -> Fields:
            return {"error_code": _code_for(request, error)}

        try:
            answer = self._producers.end_with_new_epoch(caller, committed, now_us=now_us())
        except Refusal as refusal:
            return refused(refusal)
        return complete_with(
            answer,
            lambda next_one: {
                "error_code": NONE, "producer_id": next_one.producer_id, "producer_epoch": next_one.epoch,
            },
            refused,
        )  # fmt: skip

    def commit_positions(self, session: Session, request: Request) -> Answer:
        return take_turns(self._commit_positions(request))

    def _commit_positions(self, request: Request) -> Turns[Fields | Awaitable[Fields]]:
        body = request.body
        now = now_us()
        refused = NONE
        call = MemberCall(body.group_id, "", -1)
        if request.version >= 3:
            call = MemberCall(body.group_id, body.member_id, body.generation_id, body.group_instance_id)
        positions: dict[tuple[Partition, PositionKey], StoredPosition] = {}
        key = PositionKey(KAFKA, body.group_id)

        def collect(partition: Partition, position: StoredPosition) -> None:
            positions[partition, key] = position

        topics = yield from store_offsets(self._context, body.topics, collect, now)
        try:
            if request.version >= _BEGINS_FROM:
                self._producers.add_offsets(_caller_of(body), now_us=now)
            require = self._groups.admit(call, in_transaction=True, now_us=now)
            for partition, _ in positions:
                require(partition)
            self._producers.store_positions(_caller_of(body), positions)
        except Refusal as refusal:
            refused = _code_for(request, refusal)
        if refused:
            return {"topics": (yield from store_offsets(self._context, body.topics, collect, now, refused))}
        return durable(self._context, topics)


def _caller_of(body: Any) -> Caller:
    return Caller(body.transactional_id, body.producer_id, body.producer_epoch)


def _code_for(request: Request, error: Refusal) -> int:
    if error.reason is Reason.PRODUCER_FENCED and request.version >= _FENCED_FROM.get(request.key, _FENCED_FROM_ELSE):
        return PRODUCER_FENCED
    abortable_from = _ABORTABLE_FROM.get(request.key, versions.NEVER)
    if error.reason is Reason.TRANSACTION_NOT_OPEN and request.version >= abortable_from:
        return TRANSACTION_ABORTABLE
    return coordinator_code(error)
