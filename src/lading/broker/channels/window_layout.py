"""The arrays of a channel's window, for its kernels, their fallbacks and their readers.

A window is a ring of arrays: the slot of an offset is its low bits. ``owners`` holds the number of the subscriber a
message is with, or ``DONE`` or ``WAITING``.
"""

from __future__ import annotations

from typing import Final

DONE: Final = -1
"""Nothing more is to be done about this message in this channel."""
WAITING: Final = -2
"""To be delivered, for the first time or again."""
ATTEMPTS_MAX: Final = 0xFFFF
NEVER_US: Final = 0x7FFFFFFFFFFFFFFF
