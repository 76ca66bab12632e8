"""Limits of Kafka's formats; each is checked before memory is allocated."""

from __future__ import annotations

from typing import Final

PLAIN_BYTES_MAX: Final = 256 << 20
"""Limit of one batch's decompressed records. A broker's ``max.message.bytes`` limits only the compressed batch."""

PLAIN_BYTES_FREE: Final = 32 << 20
PLAIN_RATIO_MAX: Final = 100
"""A producer's batch may decompress to this many times its size, and in any case to 32 MiB.

Real producers make batches from 1 MiB or so; 8 KiB of zstd or gzip can become gigabytes.
"""

DECOMPRESSING_BYTES_MAX: Final = 1 << 30
"""All threads of a process together decompress at most this much at a time; further ones wait."""

DECOMPRESSING_BYTES_UNCOUNTED: Final = 4 << 20
"""A smaller batch does not count towards the limit: it takes too little time for a wait."""

BATCH_BYTES_WANTED: Final = 900_000
"""Our batches stay below this size, unless one message is larger: a broker's default limit is 1,048,588 bytes."""

BATCH_RECORDS_MAX: Final = 100_000
"""Limit of records in our batches."""

ANSWER_BYTES_MAX: Final = 512 << 20
"""A longer response is refused without allocating memory for it."""
