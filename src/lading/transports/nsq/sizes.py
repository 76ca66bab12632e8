"""How many bytes messages take at an nsqd, which bounds them (max-msg-size), and what it says of that."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ...dialects.nsq import limits
from ...dialects.nsq.protocol import SENT
from ...model.protocol import MessageBound
from ..fitting import fill_missing_columns, fit_to_target

if TYPE_CHECKING:
    import pyarrow as pa

EXT_LENGTH_BYTES: Final = 2
"""Before the ext of each message of an MPUB_EXT."""
LENGTH_THAT_NO_SERVER_TAKES: Final = 0x7FFF_FFFF
_TOO_BIG: Final = re.compile(r"message too big \d+ > (\d+)")


def find_oversized(batch: pa.RecordBatch, bound: MessageBound) -> list[tuple[int, int]]:
    """Return the rows above ``bound``, each with its size: of the body, in a batch with headers of these, too."""
    from ...dialects.nsq.encode import exts_and_bodies

    pairs = exts_and_bodies(fit_to_target(fill_missing_columns(batch), SENT, "NSQ", strict=False))
    head_bytes = EXT_LENGTH_BYTES if any(ext for ext, _ in pairs) else 0
    sizes = (head_bytes + len(ext) + len(body) for ext, body in pairs)
    return [(row, size_bytes) for row, size_bytes in enumerate(sizes) if size_bytes > bound.bytes_max]


def parse_bound(refusal: str) -> MessageBound | None:
    """Return the bound that an nsqd names when it refuses a message; None if that is not below NSQ's usual one."""
    match = _TOO_BIG.search(refusal)
    if match is None or int(match[1]) >= limits.MESSAGE_BYTES_MAX:
        return None
    return MessageBound(int(match[1]), "max-msg-size", is_compressed=False)
