"""Single Produce requests that are taken together: the facts of each, and the line that they begin with."""

from __future__ import annotations

from typing import Final

PARTITION, CORRELATION, BATCH_AT, BATCH_BYTES, RECORDS, LOWEST_MS, HIGHEST_MS = range(7)
PRODUCER, PRODUCER_EPOCH, SEQUENCE = range(7, 10)
"""Columns of a row: number of the partition, correlation id of the request, place and size of its batch, number of its
records, and their lowest and highest time in ms; id and epoch of its producer, and the number of its first record, or
-1, 0 and 0 if the producer has no id."""
FACT_COLUMNS: Final = 10

SIZE_BYTES: Final = 4
"""The length that comes before a request, which does not count it."""
KEY_BYTES: Final = 4
"""API key and version: a line has them, and then what follows the correlation id, up to the number of the partition."""
CORRELATION_BYTES: Final = 4
NUMBER_BYTES: Final = 4
PRODUCER_EPOCH_MAX: Final = (1 << 15) - 1
SEQUENCE_MAX: Final = (1 << 31) - 1
TAGS_BYTES: Final = 3
"""After the batch of a flexible request: the tagged fields of its partition, its topic and itself, of which it has
none."""
FLEXIBLE_FROM: Final = 9
"""The first version of Produce with tagged fields."""
VERSION_BYTE: Final = 3
"""Place of the lower byte of the version in a line; the upper one is 0 in all versions."""
CORRELATION_AT: Final = 4
"""Place of the correlation id in a response."""
