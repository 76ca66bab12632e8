"""Messages that were read, in the form an Iggy client gets: its own dialect as stored, others by Batch and carrier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from ...broker.core.read import ReadResult, RunSlice
from ...dialects import codes, registry
from ...dialects.carrier import Carried
from ...dialects.iggy.classic import messages
from ...dialects.iggy.classic.command_table import error_frame, ok_frame
from ...dialects.iggy.classic.releases import Release
from ...model.batch import FIELDS_WITH_ORIGIN, SCHEMA
from ...model.errors import LadingError
from ...model.lazy_dataclass import lazy_dataclass
from ...model.ranges import write_marks
from ...model.scan_request import ALL_FIELDS, ScanRequest
from ..base.carrying import Fit

UNBOUNDED: Final = 1 << 62
"""A bound that is never reached, for a reading that is bounded already."""


def encode_refusal(release: Release, code: int, error: LadingError) -> tuple[int, bytes]:
    """Return status and frame of the response to a command that was refused, for clients of a release."""
    row = release.commands.row_by_code.get(code)
    if row is not None and release.is_missing(row.request, error):
        return 0, ok_frame()
    status = release.code_of(error)
    return status, error_frame(status, str(error) if release.tells_errors else None)


class PolledPlace(NamedTuple):
    """The partition, as the release counts, and the offset of its last message."""

    partition_id: int
    current_offset: int


NOWHERE: Final = PolledPlace(0, 0)


@lazy_dataclass(frozen=True, slots=True)
class Answer:
    """The response to a poll: ``count`` messages in ``parts``, which may point into the log."""

    count: int
    parts: Sequence[bytes | bytearray | memoryview]
    stubs: int = 0
    """Number of messages replaced by stubs, because even the carrier cannot hold them."""
    place: PolledPlace = NOWHERE

    @property
    def size_bytes(self) -> int:
        """Bytes of all parts."""
        return sum(map(len, self.parts))


def answer_of(reading: ReadResult, place: PolledPlace, fit: Fit | None = None) -> Answer:
    """Encode the messages of a reading in the form of this release. Callable from any thread.

    ``fit`` is required if messages of other dialects are among them.
    """
    parts: list[bytes | bytearray | memoryview] = []
    count = stubs = 0
    for piece in reading.pieces:
        if piece.run.dialect == codes.IGGY_CLASSIC:
            cut = messages.slices(piece.run, piece.first, piece.end, UNBOUNDED, UNBOUNDED)
            parts += cut.parts
            count += cut.count
        else:
            for carried in _carry_messages(piece, fit):
                parts.append(registry.dialect(codes.IGGY_CLASSIC).encode(carried.batch))
                count += carried.batch.num_rows
                stubs += len(carried.unholdable)
    if reading.hidden:
        patched = bytearray().join(parts)
        messages.set_states(patched, reading.hidden)
        parts = [patched]
    return Answer(count, parts, stubs, place)


def _carry_messages(piece: RunSlice, fit: Fit | None) -> Iterator[Carried]:
    """Yield messages in a form that Iggy can hold.

    Its own are unchanged; those of another dialect are restored from their carriers, and then fitted.
    """
    own = piece.run.dialect == codes.IGGY_CLASSIC
    for some in registry.decode(
        piece.run, ScanRequest(piece.first, piece.end, ALL_FIELDS if own else FIELDS_WITH_ORIGIN, carrier=not own)
    ):
        batch = registry.to_batch(some)
        yield Carried(batch, []) if own or fit is None else fit(batch)


def batch_of(reading: ReadResult, fit: Fit) -> tuple[pa.RecordBatch, int]:
    """Return the messages of a reading as one Batch with their states, and the number of stubs in it.

    Callable from any thread.
    """
    carried = [part for piece in reading.pieces for part in _carry_messages(piece, fit)]
    table = pa.Table.from_batches([part.batch for part in carried], schema=SCHEMA).combine_chunks()
    batch = table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=SCHEMA)
    return _with_states(batch, reading.hidden), sum(len(part.unholdable) for part in carried)


def _with_states(batch: pa.RecordBatch, hidden: Sequence[tuple[int, int, int]]) -> pa.RecordBatch:
    if not hidden:
        return batch
    at = batch.schema.get_field_index("state")
    states = write_marks(batch.column("state").to_numpy(), batch.column("offset").to_numpy(), hidden)
    return batch.set_column(at, SCHEMA.field("state"), pa.array(states, pa.int8()))
