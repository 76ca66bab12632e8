"""Constants of the kernels of the hot path and of their fallbacks: forms of publishing, reasons, response sizes."""

from __future__ import annotations

from typing import Final

PLAIN_FORM, EXT, TRACED = range(3)
"""Forms of a published message in its command: body; u16 length, ext, body; u64 trace id, body."""

FINE, NO_BODY, TOO_LARGE, BAD_EXT_LENGTH, BAD_JSON, BAD_TRACE, PLAIN_TOPIC, BAD_ITEM = range(8)
"""Why a publication is refused; errors.py has the responses."""

RESPONSE, ERROR, MESSAGE = range(3)
"""Types of frames."""
OK: Final = b"OK"
FIN: Final = b"FIN "
ID_BYTES: Final = 16
FIN_BYTES: Final = len(FIN) + ID_BYTES + 1
"""A FIN with its line feed."""
DETAIL_BYTES: Final = 12
"""Queue offset and raw size of a message, as after SUB_ADVANCED."""

SIZE_BYTES: Final = 4
"""The size of a body, after its line."""
ANSWER_BYTES: Final = 10
"""A frame with OK."""
TRACED_ANSWER_BYTES: Final = 38
"""A frame with OK, internal id, trace id, offset and raw size."""
SEED_HEAD_BYTES: Final = 4
"""A record in the queue of the fork's server has only its length in front."""
