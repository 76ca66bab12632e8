"""The arrays of a channel's window, for its kernels, their fallbacks and their readers.

A window is a ring of arrays: the slot of an offset is its low bits. ``owners`` has the number of the subscriber that
has a message, or ``DONE`` or ``WAITING``.
"""

from __future__ import annotations

from typing import Final

DONE: Final = -1
"""The channel has finished with this message."""
WAITING: Final = -2
"""The message waits to be delivered, for the first time or again."""
ATTEMPTS_MAX: Final = 0xFFFF
NEVER_US: Final = 0x7FFFFFFFFFFFFFFF
