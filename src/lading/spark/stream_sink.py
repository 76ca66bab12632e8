"""Streams into topics: each batch becomes visible once, whatever fails and is retried."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from ..tables.plan.options import SinkOptions
from .sink import Messages, TaskCommit, TopicWriter, task_context
from .types import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import Row

ROWS_AT_A_TIME: Final = 10_000
"""Rows that are made into one Arrow batch if Spark passes rows: as many as it puts into a batch itself."""


class StreamWriter(TopicWriter, DataSourceStreamWriter):
    """``df.writeStream.format("lading")`` for Spark 4.0, which passes rows."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._schema = arrow_schema(schema)

    def write(self, iterator: Iterator[Row]) -> TaskCommit:
        """Send the rows of one task attempt."""
        return self.send_batch(_to_batches(iterator, self._schema))

    def send_batch(self, batches: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Send the rows of one task attempt under the name of the query and its batch."""
        context = task_context()
        query, batch = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
        return self.send(batches, f"{query}/{batch}")

    def commit(self, messages: Messages, batchId: int) -> None:
        """Make the batch's messages visible, once."""
        self.commit_all(messages)

    def abort(self, messages: Messages, batchId: int) -> None:
        """Discard what was sent."""
        self.abort_all(messages)


# Spark looks at the class to see whether it takes Arrow, and 4.0 has none that does
if hasattr(datasource, "DataSourceStreamArrowWriter"):

    class ArrowStreamWriter(StreamWriter, datasource.DataSourceStreamArrowWriter):
        """The writer for Spark from 4.1 on, which passes Arrow batches."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:  # type: ignore[override]
            """Send the rows of one task attempt."""
            return self.send_batch(iterator)

    def make_stream_writer(options: SinkOptions, schema: StructType) -> StreamWriter:
        """Return the writer for this release of Spark."""
        return ArrowStreamWriter(options, schema)

else:
    make_stream_writer = StreamWriter


def _to_batches(rows: Iterable[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    rest = iter(rows)
    while some := list(islice(rest, ROWS_AT_A_TIME)):
        yield pa.RecordBatch.from_pylist([row.asDict(recursive=True) for row in some], schema=schema)
