"""Commands that only Lading's own Iggy endpoint serves: message states, listed and set.

Iggy's crate 0.0.40 has none for them, and its server closes the connection on a code that it does not know. The codes
are the letters ``LAD`` and a number, far above those of any generation (docs/reference/iggy-differences.md).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Annotated, Final

from ....model.errors import LocalError, MalformedMessage, Reason
from ....model.lazy_dataclass import lazy_dataclass
from ....model.state import State
from .primitives import BOOL, IDENTIFIER, TEXT, U8, U32, U64, Codec, Identifier, repeat_to_end
from .records import record
from .validation import Rule

OWN_CODES_FROM: Final = 0x4C41_4400
"""``LAD`` and a zero; request frames carry it little-endian."""
RANGES_MAX: Final = 100_000
"""Ranges in one request, and in one response."""
REASON_LENGTH_MAX: Final = 1_000
WHERE_LENGTH_MAX: Final = 1 << 20

_RANGE = struct.Struct("<QQ")


def _read_state(data: memoryview, at: int) -> tuple[State, int]:
    code, end = U8.read(data, at)
    try:
        return State(code), end
    except ValueError:
        raise MalformedMessage(f"unknown message state {code}", reason=Reason.INVALID_STATE, at=at) from None


STATE: Final[Codec[State]] = Codec(_read_state, U8.write)
"""``[code u8]``, as in polled messages."""


def _read_ranges(data: memoryview, at: int) -> tuple[Sequence[tuple[int, int]], int]:
    size_bytes = len(data) - at
    if size_bytes % _RANGE.size:
        raise MalformedMessage(f"{size_bytes} bytes are not a number of ranges of {_RANGE.size} bytes", at=at)
    if not 1 <= size_bytes // _RANGE.size <= RANGES_MAX:
        sentence = f"{size_bytes // _RANGE.size} ranges in one request; 1 to {RANGES_MAX} are possible"
        raise MalformedMessage(sentence, reason=Reason.INVALID_COUNT, at=at)
    return tuple(_RANGE.iter_unpack(data[at:])), len(data)


def _write_ranges(ranges: Sequence[tuple[int, int]]) -> bytes:
    try:
        return b"".join(_RANGE.pack(first, end) for first, end in ranges)
    except struct.error:
        raise LocalError("an offset is a number from 0 to 2^64 - 1") from None


RANGES: Final[Codec[Sequence[tuple[int, int]]]] = Codec(_read_ranges, _write_ranges)
"""``[first u64][end u64]`` up to the end of the payload; ``end`` is not included."""

_REASON: Final = Rule(
    lambda reason: len(reason) <= REASON_LENGTH_MAX,
    Reason.MALFORMED,
    f"a reason has at most {REASON_LENGTH_MAX:,} characters",
)
_WHERE: Final = Rule(
    lambda where: len(where) <= WHERE_LENGTH_MAX,
    Reason.REQUEST_TOO_LARGE,
    f"a filter has at most {WHERE_LENGTH_MAX:,} characters",
)


@lazy_dataclass(frozen=True, slots=True)
class GetStates:
    """Returns ListedStates of the offsets from ``first`` up to, not including, ``end``."""

    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]
    partition_id: Annotated[int, U32]
    first: Annotated[int, U64]
    end: Annotated[int, U64]


@lazy_dataclass(frozen=True, slots=True)
class SetStates:
    """Set the state of ``ranges``; the response, StatesProgress, comes when it is durable. ``reason`` may be empty."""

    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]
    partition_id: Annotated[int, U32]
    state: Annotated[State, STATE]
    dry_run: Annotated[bool, BOOL]
    reason: Annotated[str, TEXT, _REASON]
    ranges: Annotated[Sequence[tuple[int, int]], RANGES]


@lazy_dataclass(frozen=True, slots=True)
class SetStatesWhere:
    """Set the state of a range's messages that a filter selects, for about a second; the response is StatesProgress."""

    stream: Annotated[Identifier, IDENTIFIER]
    topic: Annotated[Identifier, IDENTIFIER]
    partition_id: Annotated[int, U32]
    state: Annotated[State, STATE]
    dry_run: Annotated[bool, BOOL]
    first: Annotated[int, U64]
    end: Annotated[int, U64]
    reason: Annotated[str, TEXT, _REASON]
    where: Annotated[str, TEXT, _WHERE]


@lazy_dataclass(frozen=True, slots=True)
class StateRange:
    """Messages of one state that is not ``available``; ``end`` is not included."""

    first: Annotated[int, U64]
    end: Annotated[int, U64]
    state: Annotated[State, STATE]


@lazy_dataclass(frozen=True, slots=True)
class ListedStates:
    """The first ranges of a response, and the offset to ask on from (the end of the request: no more)."""

    next_offset: Annotated[int, U64]
    ranges: Annotated[Sequence[StateRange], repeat_to_end(record(StateRange))]


@lazy_dataclass(frozen=True, slots=True)
class StatesProgress:
    """Progress of one request, and the range from ``first`` up to ``end`` that it has left."""

    seen: Annotated[int, U64]
    matched: Annotated[int, U64]
    changed: Annotated[int, U64]
    first: Annotated[int, U64]
    end: Annotated[int, U64]
