"""Topics in Daft: a DataFrame with a task for each partition, of which projection and filters are pushed down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from ..client.scan import TopicScan
from ..client.scan_conditions import (
    MIRRORED,
    AllConditions,
    AnyCondition,
    ColumnComparison,
    ColumnCondition,
    ColumnNull,
    ColumnValues,
)
from ..model.errors import LocalError
from ..model.extras import describe_install

if TYPE_CHECKING:
    import daft


def to_data_frame(scan: TopicScan) -> daft.DataFrame:
    """Return a lazy DataFrame of a scan, ``to_data_frame(scan).where(daft.col("delay") > 60).count_rows()``.

    Each partition is a task, which is read anew by each query; a message is decoded as far as the query needs it.
    Raises LocalError if Daft is not installed.
    """
    try:
        from daft.io.source import DataSource, DataSourceTask
        from daft.recordbatch import RecordBatch
        from daft.schema import Schema
    except ImportError:
        raise LocalError(f"daft: the package is not installed; {describe_install('daft')}") from None

    class TopicTask(DataSourceTask):  # type: ignore[misc]
        """One partition of a scan."""

        def __init__(self, part: TopicScan) -> None:
            self._part = part

        @property
        def schema(self) -> Schema:
            return Schema.from_pyarrow_schema(self._part.schema)

        async def read(self) -> AsyncIterator[RecordBatch]:
            reader = await asyncio.to_thread(self._part.to_reader)
            schema = self._part.schema
            while (batch := await asyncio.to_thread(next, reader, None)) is not None:
                yield RecordBatch.from_arrow_record_batches([batch], schema)

    class TopicSource(DataSource):  # type: ignore[misc]
        """A scan as a source of Daft."""

        @property
        def name(self) -> str:
            return str(scan)

        @property
        def schema(self) -> Schema:
            return Schema.from_pyarrow_schema(scan.schema)

        async def get_tasks(self, pushdowns: Any) -> AsyncIterator[DataSourceTask]:
            part = scan
            names = pushdowns.columns
            if pushdowns.filters is not None:
                part = part.push_down(to_condition(pushdowns.filters))
                names = names and [*names, *pushdowns.filter_required_column_names()]
            elif pushdowns.limit is not None:
                part = part.limit(pushdowns.limit)
            if names is not None:
                part = part.select(names)
            for piece in await asyncio.to_thread(part.split):
                yield TopicTask(piece)

    return TopicSource().read()


def to_condition(expression: daft.Expression) -> ColumnCondition | None:
    """Return the part of a Daft expression that Lading can evaluate, or None."""
    from daft.expressions.visitor import PredicateVisitor

    class Reader(PredicateVisitor[Any]):  # type: ignore[misc]
        """Returns a condition, the name of a column, a constant in a tuple of one, or None."""

        def visit_col(self, name: str) -> Any:
            return name

        def visit_lit(self, value: Any) -> Any:
            return (value,)

        def visit_alias(self, expr: daft.Expression, alias: str) -> Any:
            return self.visit(expr)

        def visit_cast(self, expr: daft.Expression, dtype: Any) -> Any:
            return None

        def visit_function(self, name: str, args: list[daft.Expression]) -> Any:
            return None

        def visit_coalesce(self, args: list[daft.Expression]) -> Any:
            return None

        def visit_and(self, left: daft.Expression, right: daft.Expression) -> Any:
            return AllConditions((self.read(left), self.read(right)))

        def visit_or(self, left: daft.Expression, right: daft.Expression) -> Any:
            return AnyCondition((self.read(left), self.read(right)))

        def visit_not(self, expr: daft.Expression) -> Any:
            return None

        def visit_equal(self, left: daft.Expression, right: daft.Expression) -> Any:
            return self.compare(left, "=", right)

        def visit_not_equal(self, left: daft.Expression, right: daft.Expression) -> Any:
            return self.compare(left, "<>", right)

        def visit_less_than(self, left: daft.Expression, right: daft.Expression) -> Any:
            return self.compare(left, "<", right)

        def visit_less_than_or_equal(self, left: daft.Expression, right: daft.Expression) -> Any:
            return self.compare(left, "<=", right)

        def visit_greater_than(self, left: daft.Expression, right: daft.Expression) -> Any:
            return self.compare(left, ">", right)

        def visit_greater_than_or_equal(self, left: daft.Expression, right: daft.Expression) -> Any:
            return self.compare(left, ">=", right)

        def visit_between(self, expr: daft.Expression, lower: daft.Expression, upper: daft.Expression) -> Any:
            return AllConditions((self.compare(expr, ">=", lower), self.compare(expr, "<=", upper)))

        def visit_is_in(self, expr: daft.Expression, items: list[daft.Expression]) -> Any:
            name, values = self.visit(expr), [self.visit(item) for item in items]
            if not isinstance(name, str) or not all(isinstance(value, tuple) for value in values):
                return None
            return ColumnValues(name, tuple(value for (value,) in values))

        def visit_is_null(self, expr: daft.Expression) -> Any:
            name = self.visit(expr)
            return ColumnNull(name) if isinstance(name, str) else None

        def visit_not_null(self, expr: daft.Expression) -> Any:
            name = self.visit(expr)
            return ColumnNull(name, is_null=False) if isinstance(name, str) else None

        def read(self, expr: daft.Expression) -> ColumnCondition | None:
            held = self.visit(expr)
            return ColumnComparison(held, "=", True) if isinstance(held, str) else _as_condition(held)

        def compare(self, left: daft.Expression, symbol: str, right: daft.Expression) -> ColumnCondition | None:
            name, value = self.visit(left), self.visit(right)
            if isinstance(name, tuple):
                name, value, symbol = value, name, MIRRORED.get(symbol, symbol)
            if not isinstance(name, str) or not isinstance(value, tuple) or value[0] is None:
                return None
            return ColumnComparison(name, symbol, value[0])

    try:
        return Reader().read(expression)
    except Exception:
        # Daft's expressions have no public form; Daft applies the parts that are not read here
        return None


def _as_condition(held: Any) -> ColumnCondition | None:
    return None if isinstance(held, tuple) else held
