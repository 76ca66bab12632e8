"""Positions of the fields of batches and their frames, and reasons to refuse stored bytes (iggy-current.md B4)."""

from __future__ import annotations

from typing import Final

from ..messages.layout import TYPED_KEY

PARTITION, BASE_OFFSET, BASE_TIME, ORIGIN_TIME, BATCH_LENGTH, BATCH_CHECKSUM, MESSAGE_COUNT = 0, 8, 16, 24, 32, 40, 48
BATCH_HEAD_BYTES: Final = 256
"""A batch: partition, base offset and times u64, its length with this head u64, checksum u64, count u32, reserved."""
BATCH_HEAD_HASHED_BYTES: Final = 52 - 8
"""Bytes of the head under the batch checksum: all that is used but the checksum itself; then those of the frames."""

PRODUCER, PRODUCER_ID, PRODUCER_EPOCH, PRODUCER_SEQUENCE, PRODUCER_END = 52, 56, 64, 68, 72
"""Since protocol 0.12 a head says who numbered the messages: a byte, 1 if somebody has, and id u64, epoch u16, sequence
u32 of the first message, with zeros between. All of it is zero if nobody has."""
PRODUCER_HASHED_BYTES: Final = 1 + 8 + 2 + 4
"""Bytes of that under the batch checksum if somebody has numbered the messages, between head and frames."""
PRODUCER_ID_MAX, PRODUCER_EPOCH_MAX, PRODUCER_SEQUENCE_MAX = (1 << 63) - 1, (1 << 15) - 1, (1 << 31) - 1
NUMBERED: Final = 1
"""Flag of chunks whose batches are numbered."""

CHECKSUM, ID, OFFSET_DELTA, TIME_DELTA, HEADERS_LENGTH, PAYLOAD_LENGTH, RESERVED = 0, 8, 24, 28, 32, 36, 40
FRAME_HEAD_BYTES: Final = 48
"""A frame: checksum u64 of all after it, id u128, deltas and lengths u32, reserved u64; payload, then headers."""

CHECKSUM_BYTES: Final = 8
FRAMES_AT: Final = BATCH_HEAD_HASHED_BYTES + PRODUCER_HASHED_BYTES
"""Where the checksums of frames begin in scratch memory; right before them is what else a batch checksum covers."""
SCRATCH_BYTES: Final = FRAMES_AT + 8
"""Room for the bytes that the checksum of a batch covers besides those of its frames, and for a word after them."""
STORED_BYTES_MIN: Final = FRAME_HEAD_BYTES

DELTA_MAX: Final = (1 << 32) - 1

OFFSETS, TIMESTAMPS, IDS, LIST_ENDS, KEY_ENDS, KEYS, KINDS, VALUE_ENDS, VALUES = range(9)
PAYLOAD_ENDS, PAYLOADS, PLACES = range(9, 12)
"""The buffers that ``fill`` writes, as Arrow has them; ``places`` holds the position of each, -1 if it is not
wanted."""

PAYLOAD_SIZE, HEADERS_SIZE = range(TYPED_KEY + 1, TYPED_KEY + 3)
"""Why ``write`` refuses a message, beside the reasons of all generations."""
