"""JSON text as Rust's serde writes and reads it: UTF-8, no spaces, no NaN, repeated keys noticed."""

from __future__ import annotations

import json
from typing import Any


class Members(dict[str, Any]):
    """The members of a JSON object; ``repeated`` is a key that it names twice, whose first value is lost here."""

    repeated: str | None = None


def dump(value: Any) -> bytes:
    """Encode a document as compact UTF-8 JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def load(body: bytes) -> Any:
    """Parse a document; its objects become Members. Raises ValueError with the fault if it is not JSON."""
    try:
        return json.loads(body.decode(), object_pairs_hook=_build_members, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("recursion limit exceeded") from None


def _build_members(pairs: list[tuple[str, Any]]) -> Members:
    members = Members(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        # a set: searching the earlier keys for each key took minutes for a stranger's body of two megabytes
        members.repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return members


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")
