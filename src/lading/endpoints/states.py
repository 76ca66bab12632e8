"""Message states as JSON, the same on the Iggy HTTP face and on admin: set by range or by offsets, listed as ranges."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from ..broker.states import ranges_of
from ..model.errors import Reason, Refusal
from ..model.state import STATE_BY_WORD, State

OFFSETS_MAX: Final = 100_000
"""Single offsets in one request."""


def parse_states(body: bytes) -> tuple[list[tuple[int, int]], State]:
    """Ranges (first, end) and the state they get; Refusal that says what is wrong with the document.

    ``{"first": 5, "end": 8, "state": "poisoned"}`` or ``{"offsets": [5, 9], "state": "available"}``.
    """
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refusal(Reason.MALFORMED, f"the body is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise Refusal(Reason.MALFORMED, "the body is no JSON object")
    word = document.pop("state", None)
    if not isinstance(word, str) or word not in STATE_BY_WORD:
        raise Refusal(Reason.INVALID_STATE, f"state is one of {', '.join(STATE_BY_WORD)}, not {word!r}")
    state = STATE_BY_WORD[word]
    if document.keys() == {"first", "end"} and all(_is_offset(value) for value in document.values()):
        return [(document["first"], document["end"])], state
    offsets = document.get("offsets")
    if document.keys() == {"offsets"} and isinstance(offsets, list) and all(map(_is_offset, offsets)) and offsets:
        if len(offsets) > OFFSETS_MAX:
            raise Refusal(Reason.REQUEST_TOO_LARGE, f"{len(offsets)} offsets in one request; at most {OFFSETS_MAX}")
        return ranges_of(offsets), state
    raise Refusal(
        Reason.MALFORMED,
        "beside state the body has first and end (end is not included), or a list offsets: numbers from 0",
    )


def _is_offset(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def states_document(states: Sequence[tuple[int, int, int]]) -> list[dict[str, Any]]:
    """Ranges that are not available, as JSON."""
    return [{"first": first, "end": end, "state": State(state).word} for first, end, state in states]
