"""What a message of the toy may be."""

from __future__ import annotations

from typing import Final

KIND_MAX: Final = 15
NAME_BYTES_MAX: Final = 255
VALUE_BYTES_MAX: Final = 65_535
HEADERS_MAX: Final = 65_535
VALUES_BYTES_MAX: Final = 1 << 20
PAYLOAD_BYTES_MAX: Final = 1 << 20
FRAME_BYTES_MAX: Final = 16 << 20
READ_BYTES_MAX: Final = 1 << 20
