"""What the kernels that write records share with their twins."""

from __future__ import annotations

from typing import Final

RECORD_HEAD_BYTES_MAX: Final = 5 + 1 + 10 + 5
"""Length, attributes, time delta and offset delta of a record at their largest."""
