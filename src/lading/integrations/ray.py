"""Topics in Ray Data: a Dataset with a task for each partition, of which projection and filters are pushed down."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ..client.scan import TopicScan
from ..model.errors import LocalError
from ..model.extras import describe_install
from .arrow import TopicDataset

if TYPE_CHECKING:
    import ray.data

PLACE_FIELDS: Final = ("partition", "offset", "timestamp")
"""Columns that a read has without decoding a message."""


def to_dataset(scan: TopicScan, **options: Any) -> ray.data.Dataset:
    """Return a lazy Dataset of a scan, ``to_dataset(scan).filter(expr=col("delay") > 60).count()``.

    Each partition is a task on any machine of the cluster, which needs Lading and reaches the server; it is read anew
    by each execution, a few megabytes at a time. Columns that are not selected are not decoded, and conditions on
    headers, payload columns, partition, offset and timestamp select messages as they are read. ``options`` are those
    of ``ray.data.read_datasource``. Raises LocalError if Ray is not installed.
    """
    try:
        from ray.data import read_datasource
        from ray.data.block import BlockMetadata
        from ray.data.datasource import Datasource, ReadTask
    except ImportError:
        raise LocalError(f"ray: the package is not installed; {describe_install('ray')}") from None

    class LadingTopicDatasource(Datasource):  # type: ignore[misc]
        """A scan as a source of Ray Data."""

        def __init__(self) -> None:
            super().__init__()
            self._projection_map: dict[str, str] | None = None

        def supports_projection_pushdown(self) -> bool:
            return True

        def supports_predicate_pushdown(self) -> bool:
            return True

        def estimate_inmemory_data_size(self) -> int | None:
            return None

        def get_read_tasks(
            self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
        ) -> list[ReadTask]:
            predicate = self.get_current_predicate()
            condition = None if predicate is None else predicate.to_pyarrow()
            names = self._get_data_columns()
            if names == []:
                # what counts rows needs no column, but a block of Ray without any has no rows
                names = [next((name for name in PLACE_FIELDS if name in scan.schema.names), scan.schema.names[0])]
            metadata = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
            schema = scan.schema if names is None else pa.schema([scan.schema.field(name) for name in names])
            return [
                ReadTask(partial(_read, part, names, condition), metadata, schema, per_task_row_limit)
                for part in scan.split()
            ]

    # by default Ray cuts what a task has read into hundreds of blocks
    blocks = {"override_num_blocks": len(scan.split())}
    return read_datasource(LadingTopicDatasource(), **{**blocks, **options})


def _read(scan: TopicScan, names: list[str] | None, condition: Any) -> Iterator[pa.Table]:
    """Yield the rows of a task. A Dataset leaves the whole condition to its source."""
    scanner = TopicDataset(scan).scanner(columns=names, filter=condition)
    for batch in scanner.to_batches():
        yield pa.Table.from_batches([batch])
