"""Which generation of Iggy a client speaks, by the first bytes of its connection.

Frames of the current one begin with a header whose first 48 bytes are zero (iggy-current.md B1); those of the classic
framing with a length of at least 4.
"""

from __future__ import annotations

from typing import Final

NO_LENGTH: Final = 0
"""What stands where a length would: only then there is something to ask."""
_ZEROS: Final = bytes(8)
"""So many bytes decide: behind a length comes a command, and none is 0 but ``kill``, which has a length."""


def is_current(first: memoryview) -> bool | None:
    """Return whether a connection that begins so is of the current generation; None if more has to come."""
    if len(first) < len(_ZEROS):
        return None
    return first[: len(_ZEROS)] == _ZEROS
