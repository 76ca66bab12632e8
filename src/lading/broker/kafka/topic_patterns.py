"""Names of topics that a regular expression of a client matches, by RE2: in linear time and bounded memory.

To be called in a worker: an expression may take a tenth of a second to compile.

Apache Kafka matches these with the same engine, in its Java form. Python's own engine takes exponential time for some
expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...model.errors import Reason, Refusal

PATTERN_CHARACTERS_MAX: Final = 10_000
_TEXT_OF: Final = {"missing )": "missing closing )"}
"""Words of the Java form that differ."""


def require_pattern(pattern: str) -> None:
    """Raise INVALID_PATTERN unless it is a regular expression, and of at most ``PATTERN_CHARACTERS_MAX``."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise Refusal(
            Reason.INVALID_PATTERN,
            f"SubscribedTopicRegex of {len(pattern)} characters: too long; the limit is {PATTERN_CHARACTERS_MAX}",
        )
    find_matching(pattern, [])


def find_matching(pattern: str, names: Sequence[str]) -> list[str]:
    """Return the names that the whole expression matches. Raises INVALID_PATTERN."""
    # none of the broker's own work needs these, and few clients have patterns
    import pyarrow as pa
    import pyarrow.compute as pc

    array = pa.array(names, pa.string())
    try:
        # alone first: "a)|(b" would be valid in parentheses
        pc.match_substring_regex(pa.array([""]), pattern=pattern)
        matches = pc.match_substring_regex(array, pattern=rf"\A(?:{pattern})\z")
    except pa.ArrowInvalid as error:
        problem = str(error).partition(": ")[2].partition(":")[0]
        raise Refusal(
            Reason.INVALID_PATTERN,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {_TEXT_OF.get(problem, problem)}.",
        ) from None
    return [name for name in array.filter(matches).to_pylist() if name is not None]
