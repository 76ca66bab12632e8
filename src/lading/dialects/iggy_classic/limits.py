"""What Iggy classic takes, with the codes its server answers otherwise (iggy.md A6; measured exact at the edge).

All hold at arrival and are checked before memory is taken. Stored and polled bytes are read more generously: the
real server itself stores over HTTP what no sender over TCP could send (iggy.md M4, M5).

Where a header key occurs twice in one message the real server loses its place and drops the connection
(iggy.md M2); here the request is refused with INVALID_HEADER_KEY and the connection stays. The same goes
for a key that is no UTF-8.
"""

from __future__ import annotations

from typing import Final

KEY_BYTES_MAX: Final = 255
VALUE_BYTES_MAX: Final = 255
"""Header keys and values have 1 to 255 bytes."""
KIND_MAX: Final = 15
REQUEST_HEADER_VALUES_BYTES_MAX: Final = 100 * 1024
"""Header values of one send request, in sum; keys do not count."""
REQUEST_PAYLOADS_BYTES_MAX: Final = 10 * 1024 * 1024
"""Payloads of one send request, in sum."""
PARTITION_KEY_BYTES_MAX: Final = 255

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
EMPTY_PAYLOAD: Final = 4024
