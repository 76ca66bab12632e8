"""The scan of a query, from options and requested columns, and its batches in the schema of the query."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..model.limits import BATCH_BYTES, BATCH_ROWS
from ..tables.plan.options import SourceOptions
from ..tables.scan.scan import ScannedBatch
from ..tables.scan.scan_spec import ScanSpec
from ..tables.scan.schema import conform
from .types import CHECKSUM_OK, RequestedSchema
from .workers import end_with_reader, freeze_modules

if TYPE_CHECKING:
    import pyarrow as pa


def plan_scan(options: SourceOptions, requested: RequestedSchema) -> ScanSpec:
    """Return how tasks read ranges for these options and columns. Raises FilterError for an invalid ``where``."""
    spec = ScanSpec(
        from_=options.from_,
        projection=requested.projection,
        states=options.states,
        where=options.where,
        verify_checksum=options.verify_checksum,
        checksum_ok=requested.checksum_ok,
        fail_on_bad_value=options.on_bad_value == "fail",
        fail_on_data_loss=options.fail_on_data_loss,
        rows_max=options.max_rows_per_batch or BATCH_ROWS,
        bytes_max=options.max_bytes_per_batch or BATCH_BYTES,
        transport=options.transport,
    )
    spec.condition()
    return spec


def conform_batches(parts: Iterator[ScannedBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a range in exactly the schema that Spark requires."""
    end_with_reader()
    for part in parts:
        columns = dict(zip(part.batch.schema.names, part.batch.columns, strict=True))
        if part.checksum_ok is not None and CHECKSUM_OK not in columns:
            columns[CHECKSUM_OK] = part.checksum_ok
        yield conform(columns, schema, part.locate)
    freeze_modules()
