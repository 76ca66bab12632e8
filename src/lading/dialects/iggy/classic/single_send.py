"""Single sends of the classic framing that are taken together: the line that they begin with (iggy.md A1, M)."""

from __future__ import annotations

import struct
from typing import Final

KERNEL_MODULE: Final = "lading.dialects.iggy.classic.single_send_kernels"

_COMMAND: Final = struct.Struct("<I")
LINE_AT: Final = 4
"""The place of a line in a request: after the length."""
HEAD_AT: Final = LINE_AT + _COMMAND.size
"""The place of the head in a request."""


def encode_line(command: int, head: bytes) -> bytes:
    """Return what requests with this command and this head begin with, after their length."""
    return _COMMAND.pack(command) + head
