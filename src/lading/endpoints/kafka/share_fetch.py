"""ShareFetch and ShareAcknowledge (KIP-932): messages of share groups, and their acknowledgement.

* ShareFetch 1-2, ShareAcknowledge 1-2. 1 most records (KIP-1206), size of batches; 2 records one by one (KIP-1206),
  renewal of the time for a record (KIP-1222).

Here: an acknowledgement gets its response once it is durable. As in Apache Kafka, a connection has one of these
requests in progress at a time: later ones wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from ...broker.channels import Delivery, Page
from ...broker.core.access.rights import Right, topic_resource
from ...broker.core.callbacks import ignore
from ...broker.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    RENEW,
    AcknowledgementBatch,
    ShareGroupConfig,
    ShareReader,
    ShareSession,
)
from ...dialects import codes, registry
from ...dialects.kafka import batch_slicing, versions
from ...dialects.kafka.errors import (
    INVALID_REQUEST,
    NONE,
    STORAGE_ERROR,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC,
    UNKNOWN_TOPIC_ID,
    code_of,
)
from ...dialects.kafka.protocol import RECORDS
from ...model.batch import FIELDS_WITH_ORIGIN
from ...model.errors import MalformedMessage, Reason, Refusal
from ...model.ranges import ranges_of_rising
from ...model.run import Run
from ...model.scan_request import ScanRequest
from ...runtime.turns import Turn, TurnCounter, Turns, finish_in_turns, take_turns
from ..base.carrying import Carrying, Fit
from ..base.services import now_us
from .handling import Answer, Context, Fields, Handler, Request, Session

if TYPE_CHECKING:
    from ...broker.core.access.principal import Principal
    from ...broker.core.topology import Topic

log = logging.getLogger(__name__)

MEMBER_CHARACTERS_MAX: Final = 36
RENEWAL_FROM: Final = 2
WAIT_MS_MAX: Final = 300_000
RECORDS_MAX: Final = 8_192
"""Bound of the records in one response, whatever the request allows."""
_MS: Final = 1_000
_BY_BATCH: Final = 0
"""The mode in which record batches are taken whole, above the bound of records if need be, and ranges of acquired
records are cut to the size of a batch (KIP-1206)."""
Bytes = bytes | bytearray | memoryview
Key = tuple[bytes, int]


def handlers(context: Context) -> Mapping[int, Handler]:
    """Return the handlers of this module."""
    shares = ShareHandlers(context)
    return {versions.SHARE_FETCH: shares.fetch, versions.SHARE_ACKNOWLEDGE: shares.acknowledge}


class ShareHandlers:
    """Handlers of one endpoint."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._broker = context.broker
        self._sessions = context.broker.share_sessions
        self._carrying = Carrying(context.services, context.name, RECORDS, default=context.settings.carrier)
        self._answer_bytes_max = int(context.settings.answer_bytes_max)
        self._messages_out = context.services.metrics.messages_out.values
        self._watched: set[int] = set()
        """Ids of connections that have share sessions."""

    def _end_sessions(self, client: Session) -> None:
        self._watched.discard(client.id)
        closing = self._sessions.close_all(client)
        # in turns: one session may read thousands of partitions
        self._context.services.partings.call(ignore for _ in closing)

    def fetch(self, session: Session, request: Request) -> Answer:
        return self._fetch(session, request)

    def acknowledge(self, session: Session, request: Request) -> Answer:
        return self._acknowledge(session, request)

    # -- ShareAcknowledge

    async def _acknowledge(self, client: Session, request: Request) -> Fields:
        body = request.body
        config = self._sessions.find_config(body.group_id or "")
        if (problem := _find_problem(body)) is not None:
            return _refuse(INVALID_REQUEST, problem, config)
        renews = request.version >= RENEWAL_FROM and body.is_renew_ack
        try:
            self._sessions.groups.require(body.group_id)
            if body.share_session_epoch == INITIAL_EPOCH:
                raise Refusal(
                    Reason.SHARE_SESSION_EPOCH_INVALID,
                    "ShareAcknowledge opens no share session; send ShareFetch with epoch 0 first",
                )
            share = self._sessions.continue_session(body.group_id, body.member_id, body.share_session_epoch)
        except Refusal as refusal:
            return _refuse(code_of(refusal), str(refusal), config)
        codes_by_place = await self._settle_all(client.principal, share, body.topics, renews, config)
        if body.share_session_epoch == FINAL_EPOCH:
            await finish_in_turns(self._sessions.close(share))
        rows: dict[bytes, list[Fields]] = {}
        for (topic, number), code in codes_by_place.items():
            rows.setdefault(topic, []).append({"partition_index": number, "error_code": code, **_NO_LEADER})
        return {
            "error_code": NONE,
            "acquisition_lock_timeout_ms": config.lock_us // _MS,
            "responses": [{"topic_id": _to_uuid(topic), "partitions": some} for topic, some in rows.items()],
        }

    async def _settle_all(
        self,
        principal: Principal | None,
        share: ShareSession,
        topics: Iterable[Any],
        renews: bool,
        config: ShareGroupConfig,
    ) -> dict[Key, int]:
        """Settle messages of several partitions; return the code of each partition once that is durable."""
        results = await finish_in_turns(self._settle_in_turns(principal, share, topics, renews, config))
        if any(code == NONE for code in results.values()):
            pending = self._broker.catalog_commit.confirm()
            done: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
            pending.add_done_callback(lambda one: None if done.done() else done.set_result(one.error))
            if (await done) is not None:
                results = {place: code or STORAGE_ERROR for place, code in results.items()}
        return results

    def _settle_in_turns(
        self,
        principal: Principal | None,
        share: ShareSession,
        topics: Iterable[Any],
        renews: bool,
        config: ShareGroupConfig,
    ) -> Turns[dict[Key, int]]:
        results: dict[Key, int] = {}
        turn = TurnCounter()
        for row in topics:
            topic_id = _to_bytes(row.topic_id)
            topic, code = self._find_topic(principal, topic_id)
            if turn.is_over():
                yield
            for wanted in row.partitions:
                if turn.is_over():
                    yield
                if not wanted.acknowledgement_batches:
                    continue
                batches: list[AcknowledgementBatch] = []
                problem = code
                last = -1
                for one in wanted.acknowledgement_batches:
                    kinds = list(one.acknowledge_types)
                    if not _is_valid(one.first_offset, one.last_offset, last, kinds, RENEW if renews else RENEW - 1):
                        problem = problem or INVALID_REQUEST
                        break
                    last = one.last_offset
                    batches.append(AcknowledgementBatch(one.first_offset, last, kinds))
                    if turn.is_over():
                        yield
                if not problem:
                    assert topic is not None
                    problem = self._settle(share, topic, wanted.partition_index, batches)
                results[topic_id, wanted.partition_index] = problem
        return results

    def _settle(self, share: ShareSession, topic: Topic, number: int, batches: Sequence[AcknowledgementBatch]) -> int:
        """Settle messages of one partition; return the code."""
        if not 0 <= number < len(topic.partitions):
            return UNKNOWN_TOPIC
        reader = share.find((topic.uuid, number))
        try:
            if reader is None or reader.is_lost:
                raise Refusal(
                    Reason.NOT_IN_FLIGHT,
                    f"the member has no messages of partition {topic.partitions[number]}; fetch some first",
                )
            self._sessions.settle(reader, batches, now_us())
        except Refusal as refusal:
            return INVALID_REQUEST if refusal.reason is Reason.INVALID_OFFSET else code_of(refusal)
        return NONE

    def _find_topic(self, principal: Principal | None, topic_id: bytes) -> tuple[Topic | None, int]:
        """Return a topic that the user may read, or the error code if it does not exist or the user may not read it."""
        topic = self._context.topics.find_by_uuid(topic_id)
        if topic is None:
            return None, UNKNOWN_TOPIC_ID
        resource = topic_resource(topic.stream.name, topic.name)
        if self._broker.access.allows(principal, Right.READ, resource):
            return topic, NONE
        may_know = self._broker.access.allows(principal, Right.DESCRIBE, resource)
        return None, TOPIC_AUTHORIZATION_FAILED if may_know else UNKNOWN_TOPIC_ID

    # -- ShareFetch

    async def _fetch(self, client: Session, request: Request) -> Fields:
        body = request.body
        config = self._sessions.find_config(body.group_id or "")
        renews = request.version >= RENEWAL_FROM and body.is_renew_ack
        if (problem := _find_problem(body) or (_find_renewal_problem(body) if renews else None)) is not None:
            return _refuse(INVALID_REQUEST, problem, config)
        is_final = body.share_session_epoch == FINAL_EPOCH
        try:
            if body.share_session_epoch == INITIAL_EPOCH:
                if any(one.acknowledgement_batches for row in body.topics for one in row.partitions):
                    return _refuse(INVALID_REQUEST, "a new share session has nothing to acknowledge", config)
                self._sessions.groups.create(body.group_id)
                if client.id not in self._watched:
                    # once for each connection, even if it opens several sessions
                    self._watched.add(client.id)
                    client.on_lost.append(partial(self._end_sessions, client))
                share = await finish_in_turns(self._sessions.open(body.group_id, body.member_id, client))
            else:
                share = self._sessions.continue_session(body.group_id, body.member_id, body.share_session_epoch)
        except Refusal as refusal:
            return _refuse(code_of(refusal), str(refusal), config)
        rows = ShareRows()
        settled = await self._settle_all(client.principal, share, body.topics, renews, config)
        for place, code in settled.items():
            rows.add(place)["acknowledge_error_code"] = code
        if is_final:
            await finish_in_turns(self._sessions.close(share))
            return rows.encode(config)
        await finish_in_turns(self._update(client.principal, share, body, rows))
        if not renews:
            await self._take(client, share, request, config, rows)
        for reader in share.readers.values():
            if reader.is_new:
                reader.is_new = False
                rows.add(reader.place)
        return rows.encode(config)

    def _update(self, principal: Principal | None, share: ShareSession, body: Any, rows: ShareRows) -> Turns[None]:
        """Make the session read the partitions that the request adds, and stop reading those that it removes."""
        turn = TurnCounter()
        for row in body.topics:
            topic_id = _to_bytes(row.topic_id)
            topic, code = self._find_topic(principal, topic_id)
            channel = None
            for wanted in row.partitions:
                number = wanted.partition_index
                if topic is None or not 0 <= number < len(topic.partitions):
                    rows.add((topic_id, number))["error_code"] = code or UNKNOWN_TOPIC
                elif self._context.topics.is_internal(topic):
                    # a log without records: there is nothing to have a queue of
                    rows.add((topic_id, number))
                elif (topic_id, number) not in share.readers or share.readers[topic_id, number].is_lost:
                    try:
                        channel = channel or (yield from self._sessions.open_channel(share.group, topic))
                        self._sessions.add(share, channel, number)
                    except Refusal as refusal:
                        rows.add((topic_id, number))["error_code"] = code_of(refusal)
                if turn.is_over():
                    yield
            # also a topic without partitions takes time
            if turn.is_over():
                yield
        for row in body.forgotten_topics_data:
            for number in row.partitions:
                share.forget((_to_bytes(row.topic_id), number))
                if turn.is_over():
                    yield
            if turn.is_over():
                yield
        yield from self._forget_unreadable(principal, share, rows)

    def _forget_unreadable(self, principal: Principal | None, share: ShareSession, rows: ShareRows) -> Turns[None]:
        """Report partitions of the session that were deleted, or that the user may not read any more."""
        turn = TurnCounter()
        codes_by_topic: dict[bytes, int] = {}
        for place, reader in list(share.readers.items()):
            topic_id, _ = place
            code = codes_by_topic.get(topic_id)
            if code is None:
                code = codes_by_topic[topic_id] = self._find_topic(principal, topic_id)[1]
            if code or reader.is_lost:
                share.forget(place)
                rows.add(place)["error_code"] = code or UNKNOWN_TOPIC
            if turn.is_over():
                yield

    async def _take(
        self, client: Session, share: ShareSession, request: Request, config: ShareGroupConfig, rows: ShareRows
    ) -> None:
        """Take messages for the response; if none are available, wait for some."""
        body = request.body
        count = min(body.max_records, RECORDS_MAX)
        size_bytes = min(max(body.max_bytes, 0), self._answer_bytes_max)
        epoch = share.epoch
        if count <= 0 or size_bytes <= 0:
            return
        by_batch = request.version < RENEWAL_FROM or body.share_acquire_mode == _BY_BATCH
        if not await self._take_some(share, count, size_bytes, config, by_batch) and not rows.has_errors:
            await self._wait(client, share, min(body.max_wait_ms, WAIT_MS_MAX), config)
            if share.epoch == epoch:
                got = sum(len(one.offsets) for reader in share.readers.values() for one in reader.deliveries)
                await self._take_some(share, count - got, size_bytes, config, by_batch)
        batch_size = body.batch_size if by_batch else 0
        for reader in list(share.readers.values()):
            if reader.deliveries:
                deliveries, reader.deliveries = reader.deliveries, []
                await self._encode(reader, deliveries, batch_size, rows)

    async def _take_some(
        self, share: ShareSession, count: int, size_bytes: int, config: ShareGroupConfig, by_batch: bool
    ) -> bool:
        """Take messages that are available; return whether there were any."""
        turn, has_some = Turn(), False
        for reader in share.take(count, size_bytes, config, now_us(), by_batch=by_batch):
            has_some |= bool(reader.deliveries)
            await turn.give_way()
        return has_some

    async def _wait(self, client: Session, share: ShareSession, wait_ms: int, config: ShareGroupConfig) -> None:
        """Wait until the member has a message, the session or the connection ends, or the time is over."""
        if wait_ms <= 0 or not share.readers:
            return
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()

        def end() -> None:
            if not ready.done():
                ready.set_result(None)

        share.on_ready = end
        timer = loop.call_later(wait_ms / 1_000, end)
        unstop = self._context.services.add_stop_callback(end)
        client.on_lost.append(end)
        try:
            begun = take_turns(share.wait(config))
            if begun is not None:
                await begun
            await ready
        finally:
            share.stop_waiting()
            timer.cancel()
            unstop()
            if end in client.on_lost:
                client.on_lost.remove(end)

    async def _encode(self, reader: ShareReader, deliveries: list[Delivery], batch_size: int, rows: ShareRows) -> None:
        """Add the records of a partition to the response."""
        pages: dict[int, tuple[Page, list[NDArray[np.int64]]]] = {}
        for one in deliveries:
            pages.setdefault(id(one.page), (one.page, []))[1].append(one.offsets)
        some = [(page, np.sort(np.concatenate(offsets))) for page, offsets in pages.values()]
        some.sort(key=lambda piece: int(piece[1][0]))
        fit = self._carrying.fit(reader.channel.topic)
        has_condition = reader.lane.condition is not None
        slice_batches = _slice_wanted if has_condition else batch_slicing.slice_holding
        if all(page.run.dialect == codes.KAFKA for page, _ in some) and not has_condition:
            parts, unreadable = list_parts(fit, slice_batches, some)
        else:
            work = partial(list_parts, fit, slice_batches)
            parts, unreadable = await self._context.services.run_in_worker(1, 0, work, some)
        offsets = np.concatenate([delivery.offsets for delivery in deliveries])
        attempts = np.concatenate([delivery.attempts for delivery in deliveries])
        order = np.argsort(offsets, kind="stable")
        offsets, attempts = offsets[order], attempts[order]
        if len(unreadable):
            # these are archived: no reader could ever read them
            lost = np.isin(offsets, unreadable)
            if not reader.is_lost:
                reader.lane.finish(reader.subscriber, offsets[lost])
            offsets, attempts = offsets[~lost], attempts[~lost]
        self._messages_out[self._context.name,] += len(offsets)
        row = rows.add(reader.place)
        row["records"] = b"".join(parts)
        row["acquired_records"] = _list_acquired(offsets, attempts, batch_size)


class ShareRows:
    """The partitions of a response, each with its fields."""

    def __init__(self) -> None:
        self._rows: dict[bytes, dict[int, dict[str, Any]]] = {}

    def add(self, place: Key) -> dict[str, Any]:
        """Return the row of a partition, created if it does not exist."""
        topic, number = place
        of_topic = self._rows.setdefault(topic, {})
        row = of_topic.get(number)
        if row is None:
            row = of_topic[number] = {
                "partition_index": number,
                "error_code": NONE,
                "acknowledge_error_code": NONE,
                "records": b"",
                "acquired_records": [],
                **_NO_LEADER,
            }
        return row

    @property
    def has_errors(self) -> bool:
        """Whether any partition is refused."""
        return any(row["error_code"] for rows in self._rows.values() for row in rows.values())

    def encode(self, config: ShareGroupConfig) -> Fields:
        """Return the response."""
        return {
            "error_code": NONE,
            "acquisition_lock_timeout_ms": config.lock_us // _MS,
            "responses": [
                {"topic_id": _to_uuid(topic), "partitions": list(rows.values())} for topic, rows in self._rows.items()
            ],
        }


_NO_LEADER: Final[Fields] = {"current_leader": {"leader_id": -1, "leader_epoch": -1}}


SliceBatches = Callable[[Run, NDArray[np.int64]], Iterable[Bytes]]
"""Returns the batches of a Run that hold some messages."""


def list_parts(
    fit: Fit, slice_batches: SliceBatches, pages: Sequence[tuple[Page, NDArray[np.int64]]]
) -> tuple[list[Bytes], NDArray[np.int64]]:
    """Return batches with the wanted messages of some pages, and the offsets of messages that cannot be converted."""
    parts: list[Bytes] = []
    unreadable: list[int] = []
    for page, offsets in pages:
        if page.run.dialect != codes.KAFKA:
            for first, end in ranges_of_rising(offsets).tolist():
                parts += _convert(page, first, end, fit, unreadable)
            continue
        parts += slice_batches(page.run, offsets)
    return parts, np.array(unreadable, np.int64)


def _slice_wanted(run: Run, offsets: NDArray[np.int64]) -> Iterable[Bytes]:
    """Return batches with these messages alone: if a filter selects them, whole batches would contain others too."""
    return batch_slicing.slice_selected(run, int(offsets[0]), int(offsets[-1]) + 1, offsets)


def _convert(page: Page, first: int, end: int, fit: Fit, unreadable: list[int]) -> list[Bytes]:
    """Return messages of another dialect as batches of this one; adds the offsets of those that cannot be converted."""
    try:
        return [
            registry.dialect(codes.KAFKA).encode(fit(registry.to_batch(decoded)).batch)
            for decoded in registry.decode(page.run, ScanRequest(first, end, FIELDS_WITH_ORIGIN))
        ]
    except MalformedMessage:
        if end - first == 1:
            log.exception("message %d cannot be converted for a share group", first)
            unreadable.append(first)
            return []
    # only these fail: all others are converted
    middle = (first + end) // 2
    return _convert(page, first, middle, fit, unreadable) + _convert(page, middle, end, fit, unreadable)


def _list_acquired(offsets: NDArray[np.int64], attempts: NDArray[np.int64], batch_size: int) -> list[Fields]:
    """Return ranges of offsets that were delivered equally often, of at most ``batch_size``, unless that is 0."""
    if not len(offsets):
        return []
    cuts = np.flatnonzero((np.diff(offsets) != 1) | (np.diff(attempts) != 0)) + 1
    bounds = [0, *cuts.tolist(), len(offsets)]
    rows: list[Fields] = []
    for start, stop in pairwise(bounds):
        step = batch_size if batch_size > 0 else stop - start
        for at in range(start, stop, step):
            last = min(at + step, stop) - 1
            rows.append(
                {
                    "first_offset": int(offsets[at]),
                    "last_offset": int(offsets[last]),
                    "delivery_count": int(attempts[at]),
                }
            )
    return rows


def _is_valid(first: int, last: int, before: int, kinds: list[int], kind_max: int) -> bool:
    """Return whether a batch of acknowledgements is valid in itself, and comes after the one before."""
    if first > last or first <= before or not kinds or (len(kinds) > 1 and len(kinds) != last - first + 1):
        return False
    return min(kinds) >= 0 and max(kinds) <= kind_max


def _find_problem(body: Any) -> str | None:
    """Return what is wrong with a request in itself, or None."""
    if not body.group_id:
        return "GroupId can't be empty."
    if not body.member_id or len(body.member_id) > MEMBER_CHARACTERS_MAX:
        return f"MemberId has 1 to {MEMBER_CHARACTERS_MAX} characters."
    return None


def _find_renewal_problem(body: Any) -> str | None:
    """Return what is wrong with a request that renews and fetches nothing, or None."""
    if body.max_bytes or body.min_bytes or body.max_records or body.max_wait_ms:
        return "A request that renews fetches nothing: its limits must be 0."
    if any(not one.acknowledgement_batches for row in body.topics for one in row.partitions):
        return "A request that renews adds no partitions."
    return None


def _refuse(code: int, text: str, config: ShareGroupConfig) -> Fields:
    return {
        "error_code": code,
        "error_message": text,
        "acquisition_lock_timeout_ms": config.lock_us // _MS,
        "responses": [],
    }


def _to_bytes(topic_id: Any) -> bytes:
    # the library decodes an id of zeros as None
    return bytes(16) if topic_id is None else topic_id.bytes


def _to_uuid(topic_id: bytes) -> UUID:
    return UUID(bytes=topic_id)
