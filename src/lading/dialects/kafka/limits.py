"""What is taken of Kafka's formats; each limit is checked before memory is taken."""

from __future__ import annotations

from typing import Final

PLAIN_BYTES_MAX: Final = 256 << 20
"""The records of one batch, decompressed. A broker bounds the compressed batch (``max.message.bytes``), not this."""

BATCH_BYTES_WANTED: Final = 900_000
"""Batches that we make stay below this unless one message is larger: a broker's default limit is 1,048,588 bytes."""

BATCH_RECORDS_MAX: Final = 100_000
"""Records of one batch that we make."""

ANSWER_BYTES_MAX: Final = 512 << 20
"""No memory is taken for a longer answer, whatever its length field says."""
