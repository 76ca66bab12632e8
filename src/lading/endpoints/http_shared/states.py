"""Message states as JSON, the same on Iggy's HTTP endpoint and on admin: set by range, offsets or filter, and
listed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field, TypeAdapter, ValidationError

from ...broker.core.states import Search, SearchResult, find_changes, list_states, portions, selecting
from ...broker.schemas.stored_schemas import choose_form
from ...model.errors import Reason, Refusal
from ...model.ranges import ranges_of
from ...model.state import STATE_BY_WORD, State
from ...runtime.turns import TurnCounter, Turns, finish_in_turns
from ..base.fair_runner import call_once
from ..base.services import Services, now_us
from .documents import OFFSET_MAX, Count, RequestModel, answer_rows, require_known_members, sentence
from .partitions import parse_partition

if TYPE_CHECKING:
    from starlette.responses import Response

    from ...broker.core.query import Query
    from ...broker.core.topology import Partition, Topic
    from ..base.request_budget import RequestBudget

OFFSETS_MAX: Final = 100_000
"""Single offsets in one request."""
OFFSETS_INLINE: Final = 1_000
"""More are sorted by a worker."""
BODY_BYTES_MAX: Final = 4 << 20
INLINE_BYTES_MAX: Final = 16 << 10
"""Longer bodies are parsed in a worker."""
WORK_S: Final = 1.0
"""A request by filter gets its response after about this long, with the ranges that are left to do."""
LOOK_MESSAGES_MAX: Final = 1 << 17
TRIES_MAX: Final = 16
"""Number of times that a filter on states is tried again because other requests change them."""


class StatesDocument(RequestModel):
    """PUT …/states of a partition: ``first`` and ``end``, or ``offsets``, or ``where`` with or without a range."""

    state: str
    offsets: Annotated[list[Any], Field(min_length=1)] | None = None
    """Each a Count: see ``_require_offsets``."""
    where: str | None = None
    first: Count | None = None
    end: Count | None = None
    reason: str | None = None
    dry_run: bool = False


class TopicStatesDocument(RequestModel):
    """PUT …/states of a topic: ``where``, and what is left of an earlier request."""

    state: str
    where: str
    ranges: dict[str, Any] | None = None
    """Two Counts for each partition: see ``clip_ranges``."""
    reason: str | None = None
    dry_run: bool = False


@dataclass(slots=True)
class StateChangeProgress:
    """Progress of one request: messages looked at, matching, changed, and the range that is left."""

    seen: int = 0
    matched: int = 0
    changed: int = 0
    first: int = 0
    end: int = 0

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "seen": self.seen, "matched": self.matched, "changed": self.changed,
            "first": self.first, "end": self.end, "done": self.first >= self.end,
        }  # fmt: skip


class StateRequests:
    """Requests about states, for both HTTP endpoints."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._broker = services.broker
        self._bytes_max = services.settings.endpoints.admin.answer_bytes_max

    async def set(self, find: Callable[[], Partition], wanted: StatesDocument, client: str) -> StateChangeProgress:
        """Set states in the partition that ``find`` finds; filters of one ``client`` take turns with those of others.

        Raises Refusal, before anything is set.
        """
        partition, state = find(), state_of(wanted.state)
        if wanted.where is not None and wanted.offsets is None:
            log = partition.log
            first = max(wanted.first or 0, log.first_offset)
            end = min(log.last_stable_offset if wanted.end is None else wanted.end, log.last_stable_offset)
            query = await self.query(wanted.where, client, partition.topic)
            return await self.by_filter(
                find, query, first, end, state, wanted.reason, wanted.dry_run, time.monotonic() + WORK_S, client
            )
        # 100,000 single offsets are sorted by a worker: 30 ms
        ranges = await self._services.run_in_worker(len(wanted.offsets or ()), OFFSETS_INLINE, _parse_ranges, wanted)
        return await self.set_ranges(find, ranges, state, wanted.reason, wanted.dry_run)

    async def set_ranges(
        self,
        find: Callable[[], Partition],
        ranges: Sequence[tuple[int, int]],
        state: State,
        reason: str | None,
        dry_run: bool,
    ) -> StateChangeProgress:
        """Set the state of ranges, refused as a whole if one offset is not kept."""
        partition = find()
        count = sum(end - first for first, end in ranges)
        progress = StateChangeProgress(count, count)
        # refused as a whole, whatever the portions; in turns: 20,000 single offsets kept the loop for 0.2 s
        different = await finish_in_turns(find_changes(partition, ranges, state))
        if dry_run:
            progress.changed = sum(end - first for first, end in different)
            return progress
        # one without ranges waits for what another request may have set and not brought to disk yet
        for portion in portions(different) or [()]:
            _require_same(find, partition)
            progress.changed += await self._set(partition, portion, state, reason)
            # without a sync to wait for, as with durability "os", the next portion would be set in the same pass
            await asyncio.sleep(0)
        return progress

    async def _set(
        self, partition: Partition, ranges: Sequence[tuple[int, int]], state: State, reason: str | None
    ) -> int:
        """Set states and wait until they are on disk; return the number of changed messages."""
        answered = asyncio.Event()
        refusal: Refusal | None = None

        def done(refused: Refusal | None) -> None:
            nonlocal refusal
            refusal = refused
            answered.set()

        count = self._broker.states.set_soon(partition, ranges, state, now_us=now_us(), reason=reason, done=done)
        await answered.wait()
        if refusal is not None:
            raise refusal
        return count

    async def query(self, where: str, client: str, topic: Topic) -> Query:
        """Return a filter of a topic's messages, ready. Raises FilterError if it is invalid."""
        form = choose_form(self._broker.schemas, topic)
        return await self._services.filters.run(client, call_once(partial(selecting, where, form)))

    async def by_filter(
        self,
        find: Callable[[], Partition],
        query: Query,
        first: int,
        end: int,
        state: State,
        reason: str | None,
        dry_run: bool,
        until_s: float,
        client: str,
    ) -> StateChangeProgress:
        """Set the state of what ``query`` selects of ``first`` to ``end``, until it is done or the time is over."""
        partition = find()
        search = Search(query, first, end)
        progress = StateChangeProgress(first=first, end=end)
        tries = TRIES_MAX
        while True:
            reading = search.look(
                partition,
                max_messages=LOOK_MESSAGES_MAX,
                max_bytes=self._bytes_max,
                counters=self._broker.counters,
            )
            if reading is None:
                progress.first = end
                return progress
            found: SearchResult = await self._services.filters.run(client, search.find(reading, partition))
            _require_same(find, partition)
            go_on_at = found.end_offset
            kept = [(max(one, partition.log.first_offset), other) for one, other in found.ranges]
            for portion in portions([(one, other) for one, other in kept if one < other]):
                if not search.holds(reading, partition, portion[0][0], portion[-1][1]):
                    # states were set meanwhile: what is left here is looked at again
                    go_on_at = portion[0][0]
                    tries -= 1
                    break
                if dry_run:
                    different = await finish_in_turns(find_changes(partition, portion, state))
                    progress.changed += sum(other - one for one, other in different)
                else:
                    progress.changed += await self._set(partition, portion, state, reason)
                progress.matched += sum(other - one for one, other in portion)
                await asyncio.sleep(0)
                _require_same(find, partition)
            if not tries:
                raise Refusal(
                    Reason.STOPPING,
                    f"states of {partition} changed concurrently; offsets before {go_on_at} are done, repeat the "
                    "request",
                )
            progress.seen += found.seen if go_on_at == found.end_offset else go_on_at - search.at
            search.at = progress.first = min(go_on_at, end)
            if time.monotonic() >= until_s:
                return progress


def parse_states(body: bytes) -> StatesDocument:
    """Parse the body of a request that changes states in one partition.

    It is ``{"first": 5, "end": 8, "state": "poisoned"}``, ``{"offsets": [5, 9], "state": "available"}`` or
    ``{"where": "delay > 60", "state": "poisoned"}``. Raises Refusal that says what is wrong with the body.
    """
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refusal(Reason.MALFORMED, f"the body is not JSON: {error}; send a JSON object") from None
    if not isinstance(document, dict):
        raise Refusal(Reason.MALFORMED, "the body is not a JSON object; send one")
    state_of(document.get("state"))
    offsets = document.get("offsets")
    if isinstance(offsets, list) and len(offsets) > OFFSETS_MAX:
        raise Refusal(Reason.REQUEST_TOO_LARGE, f"{len(offsets)} offsets in one request; at most {OFFSETS_MAX}")
    require_known_members(StatesDocument, document)
    if isinstance(offsets, list):
        _require_counts(offsets, "offsets")
    try:
        wanted = StatesDocument.model_validate(document, strict=True)
    except ValidationError as error:
        raise Refusal(Reason.MALFORMED, sentence(error, "the body")) from None
    if wanted.where is None:
        _parse_ranges(wanted)
    return wanted


def _require_counts(rows: Sequence[object], name: str) -> None:
    """Raise Refusal for the first row that is not a Count.

    Row by row: pydantic checks 100,000 of them in 50 ms, in which no other thread has the interpreter.
    """
    for number, row in enumerate(rows):
        if type(row) is not int or not 0 <= row <= OFFSET_MAX:
            try:
                _COUNT.validate_python(row, strict=True)
            except ValidationError as error:
                raise Refusal(Reason.MALFORMED, f"{name}.{number}: {sentence(error, name)}") from None


_COUNT: Final[TypeAdapter[int]] = TypeAdapter(Count, config={"defer_build": True})


def state_of(word: object) -> State:
    """Return the state of a word. Raises Refusal if the word is unknown."""
    if not isinstance(word, str) or word not in STATE_BY_WORD:
        raise Refusal(Reason.INVALID_STATE, f"state is one of {', '.join(STATE_BY_WORD)}, not {word!r}")
    return STATE_BY_WORD[word]


def _parse_ranges(wanted: StatesDocument) -> list[tuple[int, int]]:
    bounds = (wanted.first, wanted.end)
    if wanted.offsets is not None and wanted.where is None and bounds == (None, None):
        return ranges_of(wanted.offsets)
    if wanted.first is not None and wanted.end is not None and wanted.offsets is None:
        return [(wanted.first, wanted.end)]
    raise Refusal(
        Reason.MALFORMED,
        "the body names no offsets; give first and end (end is not included), or a list offsets, or where: "
        "offsets are numbers from 0",
    )


def _require_same(find: Callable[[], Partition], partition: Partition) -> None:
    if find() is not partition:
        raise Refusal(
            Reason.PARTITION_NOT_FOUND, f"partition {partition} was deleted; read the partitions of its topic again"
        )


def clip_ranges(ranges: dict[str, Any] | None, partitions: Sequence[Partition]) -> list[tuple[int, int, int]]:
    """Return (partition, first, end) of a request for a topic, clipped to the kept offsets.

    Raises Refusal for names that are not partitions of the topic.
    """
    if ranges is None:
        return [(one.number, one.log.first_offset, one.log.last_stable_offset) for one in partitions]
    left = []
    for name, bounds in ranges.items():
        if not isinstance(bounds, list) or len(bounds) != 2:
            raise Refusal(Reason.MALFORMED, f"ranges.{name}: not a list of two offsets; write [first, end]")
        _require_counts(bounds, f"ranges.{name}")
        first, end = bounds
        number = parse_partition(name)
        if number >= len(partitions):
            raise Refusal(
                Reason.PARTITION_NOT_FOUND,
                f"ranges names partition {name!r}, which the topic does not have; leave it out",
            )
        log = partitions[number].log
        left.append((number, max(first, log.first_offset), min(end, log.last_stable_offset)))
    return sorted(left)


async def answer_states(partition: Partition, first: int, end: int, budget: RequestBudget) -> Response:
    """Return the ranges within ``first`` to ``end`` that are not available, as JSON."""
    states = await finish_in_turns(list_states(partition, first, end))
    return await answer_rows(states, _describe_range, budget)


def _describe_range(listed: tuple[int, int, int]) -> dict[str, Any]:
    first, end, state = listed
    return {"first": first, "end": end, "state": _WORDS[state]}


_WORDS: Final = {state.value: state.word for state in State}


def count_states(partition: Partition) -> Turns[dict[str, int]]:
    """Return how many offsets of a partition are in which state."""
    found, turn = dict.fromkeys(_WORDS, 0), TurnCounter()
    for first, end, state in (yield from list_states(partition, 0, OFFSET_MAX)):
        found[state] += end - first
        if turn.is_over():
            yield
    found[State.AVAILABLE] = partition.messages_count - sum(found.values())
    return {_WORDS[state]: count for state, count in found.items()}
