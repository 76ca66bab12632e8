"""Limits of Iggy classic, with its server's codes for values beyond them (iggy.md A6; measured exact at the edge).

All hold at arrival and are checked before memory is taken. Stored and polled bytes are read more generously: the
real server itself stores over HTTP what no sender over TCP could send (iggy.md M4, M5).

If a header key occurs twice in one message, the real server loses track of the frame and drops the connection (iggy.md
M2); here the request is refused with INVALID_HEADER_KEY and the connection stays. The same holds for a key that is not
UTF-8.
"""

from __future__ import annotations

from typing import Final

from ..messages.limits import HEADERS_TOO_LARGE as HEADERS_TOO_LARGE
from ..messages.limits import INVALID_HEADER_KEY as INVALID_HEADER_KEY
from ..messages.limits import INVALID_HEADER_VALUE as INVALID_HEADER_VALUE
from ..messages.limits import KEY_BYTES_MAX as KEY_BYTES_MAX
from ..messages.limits import KIND_MAX as KIND_MAX
from ..messages.limits import MALFORMED as MALFORMED
from ..messages.limits import NO_MESSAGES as NO_MESSAGES
from ..messages.limits import NO_ROOM as NO_ROOM
from ..messages.limits import OK as OK
from ..messages.limits import PAYLOAD_TOO_LARGE as PAYLOAD_TOO_LARGE
from ..messages.limits import VALUE_BYTES_MAX as VALUE_BYTES_MAX

REQUEST_HEADER_VALUES_BYTES_MAX: Final = 100 * 1024
"""Header values of one send request, in sum; keys do not count."""
REQUEST_PAYLOADS_BYTES_MAX: Final = 10 * 1024 * 1024
"""Payloads of one send request, in sum."""

EMPTY_PAYLOAD: Final = 4024
