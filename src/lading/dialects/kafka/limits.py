"""Limits of Kafka's formats; each is checked before memory is allocated."""

from __future__ import annotations

from typing import Final

PLAIN_BYTES_MAX: Final = 256 << 20
"""The records of one batch, decompressed. A broker bounds the compressed batch (``max.message.bytes``), not this."""

PLAIN_BYTES_FREE: Final = 32 << 20
PLAIN_RATIO_MAX: Final = 100
"""A producer's batch may be decompressed to this many times its size, and to 32 MiB whatever its ratio is.

Batches of real producers are made from 1 MiB or so; 8 KiB of zstd or gzip can become gigabytes.
"""

DECOMPRESSING_BYTES_MAX: Final = 1 << 30
"""All threads of a process together decompress into at most this much at a time; further ones wait for them."""

DECOMPRESSING_BYTES_UNCOUNTED: Final = 4 << 20
"""A smaller batch is not counted: it takes no time worth a wait."""

BATCH_BYTES_WANTED: Final = 900_000
"""Batches that we make stay below this unless one message is larger: a broker's default limit is 1,048,588 bytes."""

BATCH_RECORDS_MAX: Final = 100_000
"""Records of one batch that we make."""

ANSWER_BYTES_MAX: Final = 512 << 20
"""No memory is taken for a longer response, whatever its length field says."""
