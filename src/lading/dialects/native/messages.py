"""Native blocks: a header for exactly-once writing, then one Arrow record batch (docs/reference/chunk-format.md)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from lading.model.batch import SCHEMA
from lading.model.errors import LimitExceeded, LocalError, MalformedMessage, Reason, Refusal
from lading.model.state import State

from ...model.lazy_dataclass import lazy_dataclass
from . import ipc
from .limits import BLOCK_BYTES_MAX, BLOCK_ROWS_MAX, BLOCKS_MAX

CODE: Final = 1
_ipc: Any = pa.ipc
NO_WRITER: Final = bytes(16)

_HEADER: Final = struct.Struct("<I16sIQQQ")
HEADER_BYTES: Final = _HEADER.size
_LENGTH_BYTES: Final = 4
_APPEND_TIME_AT: Final = HEADER_BYTES - 8

SCHEMA_IN_BLOCKS: Final = pa.schema(
    [field.with_nullable(field.nullable or field.name == "timestamp") for field in SCHEMA if field.name != "offset"]
)
"""The Batch schema without ``offset``, which the chunk gives; a null timestamp means the append time."""
_OWN_SCHEMA: Final = SCHEMA_IN_BLOCKS.serialize().to_pybytes()
"""The bytes in which Lading's own writers encode this schema: compared first, without parsing."""


@lazy_dataclass(frozen=True, slots=True)
class BlockHeader:
    """Writer of a block, and its sequence number in this partition.

    ``writer_id`` is 16 bytes, zeros if absent; ``sequence`` counts a writer's blocks per partition from 0;
    ``transaction_id`` is 0 outside of transactions; ``append_time_us`` is 0 as sent and set by the broker that appends.
    """

    writer_id: bytes = NO_WRITER
    writer_epoch: int = 0
    sequence: int = 0
    transaction_id: int = 0
    append_time_us: int = 0


class Block(NamedTuple):
    """One block of a body: its bytes are ``body[start:end]``."""

    header: BlockHeader
    start: int
    end: int
    rows: int


class Checked(NamedTuple):
    """A block whose every value was checked.

    The times are None if every timestamp is null, ``digest`` is 0 for a block without a writer.
    """

    block: Block
    min_timestamp_us: int | None
    max_timestamp_us: int | None
    null_timestamps: bool
    digest: int = 0


def encode_block(
    batch: pa.RecordBatch, header: BlockHeader = BlockHeader(), compression: Literal["lz4"] | None = "lz4"
) -> bytes:
    """Encode the rows of a Batch as one block; its ``offset`` column, if any, is left out.

    ``compression`` is ``lz4`` or None. Raises LimitExceeded above 64 MiB or 16,777,216 rows and for an empty batch;
    LocalError if columns are missing or of another type.
    """
    try:
        plain = batch.select(SCHEMA_IN_BLOCKS.names).cast(SCHEMA_IN_BLOCKS)
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise LocalError(f"batch: not the columns of a native block: {error}; give those of SCHEMA_IN_BLOCKS") from None
    if not 0 < plain.num_rows <= BLOCK_ROWS_MAX or plain.nbytes > BLOCK_BYTES_MAX:
        raise LimitExceeded(
            f"a native block holds 1 to {BLOCK_ROWS_MAX} messages and {BLOCK_BYTES_MAX} bytes, "
            f"not {plain.num_rows} messages of {plain.nbytes} bytes; split the batch"
        )
    _require_sound(plain, LocalError)
    sink = pa.BufferOutputStream()
    sink.write(bytes(HEADER_BYTES))
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, SCHEMA_IN_BLOCKS, options=options) as writer:
        writer.write_batch(plain)
    block = bytearray(sink.getvalue())
    facts = (header.writer_id, header.writer_epoch, header.sequence, header.transaction_id, header.append_time_us)
    _HEADER.pack_into(block, 0, len(block) - _LENGTH_BYTES, *facts)
    return bytes(block)


def blocks(body: bytes | memoryview) -> Iterator[Block]:
    """Return the blocks of a body in order, without decoding or decompressing.

    Raises MalformedMessage if one is not whole.
    """
    data = memoryview(body)
    at = 0
    while at < len(data):
        if len(data) - at < HEADER_BYTES:
            raise MalformedMessage("a native block is truncated inside its header", at=at)
        length, *facts = _HEADER.unpack_from(data, at)
        end = at + _LENGTH_BYTES + length
        if length < HEADER_BYTES - _LENGTH_BYTES or end > len(data):
            raise MalformedMessage(f"a native block claims {length} bytes, but the body does not hold them", at=at)
        found = ipc.shape(data[at + HEADER_BYTES : end])
        if not 0 < found.rows <= BLOCK_ROWS_MAX or found.plain_bytes > BLOCK_BYTES_MAX:
            raise MalformedMessage(
                f"a native block claims {found.rows} messages of {found.plain_bytes} bytes; it may hold 1 to "
                f"{BLOCK_ROWS_MAX} messages and {BLOCK_BYTES_MAX} bytes",
                at=at,
            )
        yield Block(BlockHeader(*facts), at, end, found.rows)
        at = end


def digest_content(body: memoryview, block: Block) -> int:
    """Return the XXH3 of what the header of a numbered block does not say, the same as sent and as stored.

    Returns 0, which is compared with nothing, for a block without a writer.
    """
    if block.header.writer_id == NO_WRITER:
        return 0
    digest: int = xxhash.xxh3_64_intdigest(body[block.start + HEADER_BYTES : block.end])
    return digest


def rows_of(body: memoryview, block: Block, included: list[int] | None = None) -> pa.RecordBatch:
    """Return the record batch of one block, checked value by value, without ``offset``.

    Raises MalformedMessage if it is wrong.

    ``included`` names the columns of SCHEMA_IN_BLOCKS to read, by rising number; default all. Uncompressed columns are
    not copied, unless they are misaligned.
    """
    source = pa.py_buffer(body[block.start + HEADER_BYTES : block.end])
    options = _ipc.IpcReadOptions(
        ensure_alignment=_ipc.Alignment.DataTypeSpecific, use_threads=False, included_fields=included or []
    )
    try:
        is_own = body[block.start + HEADER_BYTES :][: len(_OWN_SCHEMA)] == _OWN_SCHEMA
        if not is_own and not pa.ipc.read_schema(source).equals(SCHEMA_IN_BLOCKS):
            raise MalformedMessage("the columns of a native block are not those of a Batch", at=block.start)
        with pa.ipc.open_stream(source, options=options) as reader:
            batch = reader.read_next_batch()
        batch.validate(full=True)
    except MalformedMessage:
        raise
    except (pa.ArrowException, OSError, EOFError, ValueError, LookupError, MemoryError, StopIteration) as error:
        raise MalformedMessage(f"a native block cannot be read: {error}", at=block.start) from None
    if batch.num_rows != block.rows:
        raise MalformedMessage("a native block has other rows than it claims", at=block.start)
    _require_sound(batch, MalformedMessage)
    return batch


def _require_sound(batch: pa.RecordBatch, error: type[Exception]) -> None:
    """Check rules that Arrow's types do not: nulls only in columns that allow them, known states, times from 1970 on.

    Raises ``error`` for the first column that breaks a rule.
    """
    for name in batch.schema.names:
        column: Any = batch.column(name)
        if name in ("state", "headers") and column.null_count:
            raise error(f"column {name} has a null; it may not")
        if name == "headers":
            entries = column.flatten()
            if entries.null_count or entries.field(0).null_count or entries.field(1).null_count:
                raise error("a header or its key or kind is null; they may not be")
        if name == "state":
            # as a writer sends it, nearly always: finding the distinct ones takes five times as long
            if (column.to_numpy() == State.AVAILABLE).all():
                continue
            unknown = set(column.unique().to_pylist()) - _STATES
            if unknown:
                raise error(f"state {unknown.pop()} is none of {sorted(_STATES)}")


_STATES: Final = frozenset(int(state) for state in State)


def check(body: bytes | memoryview) -> list[Checked]:
    """Return every block of a body, decoded and looked at as its readers will.

    Raises MalformedMessage if one is wrong, Refusal if there are too many.
    Takes a fifth of a millisecond for a thousand messages: larger bodies belong in a worker thread.
    """
    data = memoryview(body)
    checked: list[Checked] = []
    for block in blocks(data):
        if len(checked) == BLOCKS_MAX:
            raise Refusal(
                Reason.REQUEST_TOO_LARGE, f"a request holds at most {BLOCKS_MAX} native blocks; send them in parts"
            )
        batch = rows_of(data, block)
        times: Any = batch.column("timestamp").cast(pa.int64())
        extremes: Any = pc.min_max(times).as_py()
        digest = digest_content(data, block)
        checked.append(Checked(block, extremes["min"], extremes["max"], times.null_count > 0, digest))
    return checked


def restamp(
    body: bytes | memoryview, checked: list[Checked], target: NDArray[np.uint8], to: int, now_us: int
) -> tuple[int, int, int, int]:
    """Copy a checked body to ``target[to:]`` with ``now_us`` as its append time: (bytes, messages, min and max time).

    ``target`` needs as many bytes as the body has; LocalError if it has not.
    """
    size_bytes = len(body)
    if to < 0 or to + size_bytes > target.size:
        raise LocalError(
            f"{size_bytes} bytes of native blocks do not fit {target.size} bytes from byte {to}; give a larger target"
        )
    target[to : to + size_bytes] = np.frombuffer(body, np.uint8)
    stamp = np.frombuffer(now_us.to_bytes(8, "little"), np.uint8)
    low: list[int] = []
    high: list[int] = []
    for block, min_us, max_us, has_nulls, _ in checked:
        at = to + block.start + _APPEND_TIME_AT
        target[at : at + 8] = stamp
        low += [time for time in (min_us, now_us if has_nulls else None) if time is not None]
        high += [time for time in (max_us, now_us if has_nulls else None) if time is not None]
    # a chunk counts from 1970; what is older is found from there on
    return size_bytes, sum(entry.block.rows for entry in checked), max(min(low), 0), max(max(high), 0)
