"""Limits of headers in all Iggy generations, with the servers' error codes for values beyond them."""

from __future__ import annotations

from typing import Final

KEY_BYTES_MAX: Final = 255
VALUE_BYTES_MAX: Final = 255
"""Header keys and values have 1 to 255 bytes."""
KIND_MAX: Final = 15

OK: Final = 0
NO_ROOM: Final = 1
"""Error: the target array was smaller than ``room`` says; a fault of the caller, never of the sender."""
MALFORMED: Final = 3
"""InvalidCommand: lengths that do not add up, an unknown header kind."""
NO_MESSAGES: Final = 4009
HEADERS_TOO_LARGE: Final = 4017
INVALID_HEADER_KEY: Final = 4018
INVALID_HEADER_VALUE: Final = 4019
PAYLOAD_TOO_LARGE: Final = 4022
