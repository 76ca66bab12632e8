"""The data source ``lading``: topics as DataFrames, in batch and streaming reads, and DataFrames into topics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..model.errors import SettingError
from ..tables.plan.options import SinkOptions, SourceOptions, refuse_batch_options
from ..tables.plan.ranges import OffsetRange
from ..tables.plan.source_planner import SourcePlanner
from ..tables.plan.spooling import refuse_queue, resolve_spool
from ..tables.scan.scan import read_range
from .absent_headers import warn_once_of_absent_headers
from .releases import Feature
from .scan import conform_batches, plan_scan
from .types import default_schema, resolve_schema
from .workers import freeze_modules

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from .pushdown import Pushed
    from .sink import BatchWriter
    from .stream import LadingStreamReader
    from .stream_sink import StreamWriter


class LadingSource(DataSource):
    """``spark.read.format("lading")``; options in docs/reference/spark.md."""

    def __init__(self, options: dict[str, str]) -> None:
        """Create the source of one DataFrame; Spark has a copy of it plan each action."""
        super().__init__(options)
        self._frame = uuid4().hex

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "lading"

    def schema(self) -> StructType:
        """Return the default schema: the place a message was read from, and all its fields."""
        return default_schema(SourceOptions.parse(self.options).headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of ``spark.read``."""
        options = SourceOptions.parse(self.options)
        refuse_queue(options)
        if options.pushdown:
            Feature.FILTER_PUSHDOWN.require("put the condition into the option where")
        made = LadingReader if not options.pushdown else PushingReader
        return made(options, schema, self._frame)

    def streamReader(self, schema: StructType) -> LadingStreamReader:
        """Return the reader of ``spark.readStream``."""
        refuse_batch_options(self.options)
        options = resolve_spool(SourceOptions.parse(self.options))
        if not Feature.READ_LIMITS.is_offered:
            from .stream import LadingStreamReader

            if options.max_rows_per_trigger is not None or options.max_bytes_per_trigger is not None:
                Feature.READ_LIMITS.require("a batch takes all that is there: drop the option")
            return LadingStreamReader(options, schema)
        from .stream_limits import LimitedStreamReader

        return LimitedStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of ``df.write``, which appends."""
        from .sink import BatchWriter

        if overwrite:
            raise SettingError('a topic is only ever appended to: use .mode("append")')
        return BatchWriter(SinkOptions.parse(self.options), schema).check_topic()

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return the writer of ``df.writeStream`` with output mode append."""
        from .stream_sink import make_stream_writer

        if overwrite:
            raise SettingError('a topic is only ever appended to: use .outputMode("append")')
        return make_stream_writer(SinkOptions.parse(self.options), schema).check_topic()


class LadingReader(DataSourceReader):
    """A batch read: a Spark partition per offset range of a topic partition."""

    def __init__(self, options: SourceOptions, schema: StructType, frame: str = "") -> None:
        """``frame`` is the name of the DataFrame, whose headers are looked at once."""
        self.options = options
        self.wanted = resolve_schema(schema, options.columns, options.encodings, options.payload)
        self.reading = plan_scan(options, self.wanted)
        self._frame = frame

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges from startingOffsets to endingOffsets, for the present state of the topic."""
        planner = SourcePlanner(self.options)
        try:
            ranges = self.prune(planner.batch())
            warn_once_of_absent_headers(self._frame, planner.transport, self.reading, ranges)
            return [InputPartition(piece) for piece in ranges]
        finally:
            planner.close()
            freeze_modules()

    def prune(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """Return the ranges that can contain requested messages."""
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one range as Arrow batches."""
        piece = partition.value
        # without ranges, Spark reads one empty partition
        if piece is not None:
            yield from conform_batches(read_range(self.reading, piece), self.wanted.schema)


class PushingReader(LadingReader):
    """A batch read with pushdown of simple filters; Spark refuses such a reader if its pushdown is disabled."""

    def __init__(self, options: SourceOptions, schema: StructType, frame: str = "") -> None:
        super().__init__(options, schema, frame)
        self.pushed: Pushed | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Accept the filters that Arrow evaluates exactly as Spark does; yield the others back to Spark."""
        from .pushdown import push

        self.pushed, rest = push(filters, self.wanted.schema, self.wanted.projection.fields)
        return iter(rest)

    def prune(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """Return the ranges reduced by the conditions on ``partition`` and ``offset``."""
        return self.pushed.prune(ranges) if self.pushed else ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one range that satisfy the conditions."""
        for batch in super().read(partition):
            yield self.pushed.filter(batch) if self.pushed else batch
