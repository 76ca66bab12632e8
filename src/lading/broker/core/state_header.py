"""The state of a message as a header, for readers whose protocol has no field for it.

The header follows the message's own and is the only one of its name in a marked message: a producer's header of that
name is hidden while the message is marked.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ...columns.rewrite import with_headers
from ...model.kinds import Kind
from ...model.state import State

STATE_HEADER: Final = "lading-state"


def add_state(state: int, messages: pa.RecordBatch) -> pa.RecordBatch:
    """Return the messages with the word of ``state`` as their last header."""
    words = pa.repeat(pa.scalar(State(state).word), messages.num_rows)
    at = messages.schema.get_field_index("headers")
    headers = with_headers(messages.column(at), {STATE_HEADER: words}, {STATE_HEADER: Kind.RAW}, drop=(STATE_HEADER,))
    return messages.set_column(at, messages.schema.field(at), headers)
