"""Features of the installed release of PySpark, from 3.5 on, as data, and one error for those that are missing.

Pipelines and ingests run on every release, because their tasks are plain functions over ranges. The data source needs
the interface for sources in Python, and parts of it came later than others.
"""

from __future__ import annotations

import inspect
from enum import Enum
from typing import Any, Final

import pyarrow as pa
import pyspark
from pyspark.sql.pandas import types as pandas_types
from pyspark.sql.types import DataType, StructType

from ..model.errors import LocalError

RELEASE: Final = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
"""The installed release, (4, 3) for 4.3.0."""


class SparkTooOld(LocalError):
    """The installed release of PySpark lacks what was asked for."""


class Feature(Enum):
    """A feature that came after Spark 3.5: its name, and the first release that has it."""

    DATA_SOURCE = ('format("lading")', (4, 0))
    SQL_FUNCTIONS = ("the SQL functions of headers", (4, 0))
    ARROW_FUNCTIONS = ("a header as a typed column of a frame", (4, 1))
    FILTER_PUSHDOWN = ("the option pushdown", (4, 1))
    READ_LIMITS = ("a limit for the batches of a stream (maxRowsPerTrigger, maxBytesPerTrigger)", (4, 2))

    @property
    def is_offered(self) -> bool:
        """Whether the installed release has it."""
        return self.value[1] <= RELEASE

    def require(self, instead: str = "") -> None:
        """Raise SparkTooOld if the installed release lacks it; ``instead`` says what can be done without."""
        if not self.is_offered:
            name, since = self.value
            here = f"{'.'.join(map(str, since))}; this is {pyspark.__version__}"
            raise SparkTooOld(f"{name} needs Spark {here}" + (f" ({instead})" if instead else ""))


# the time zone of timestamps in Arrow has had three forms: always UTC, a flag, and a name
_TIMEZONE: Final[dict[str, Any]] = next(
    (
        {name: value}
        for name, value in (("timezone", "UTC"), ("timestamp_utc", True))
        if name in inspect.signature(pandas_types.to_arrow_type).parameters
    ),
    {},
)


def to_arrow_type(type_: DataType) -> pa.DataType:
    """Return Arrow's type for one of Spark's; timestamps are in UTC."""
    return pandas_types.to_arrow_type(type_, **_TIMEZONE)


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """Return Arrow's schema for one of Spark's; timestamps are in UTC."""
    return pandas_types.to_arrow_schema(schema, **_TIMEZONE)
