"""SQL steps in Spark: their columns are resolved before anything is read, then each batch is passed through them.

The checks stay in Arrow: messages that passed are staged as Parquet, which Spark reads natively, and the rows that the
steps return are staged by destination in tasks, so that one manifest publishes a batch, as without steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F

from ..columns.contract import did_you_mean
from ..model.errors import LocalError, SettingError
from ..spark.failures import cause
from ..spark.session import quiet
from ..spark.tasks import attempt_name, task_number
from ..spark.types import arrow_schema, schema_of
from ..tables.commit.table_commit import StagedBatch, StagedRange, StagedStepRows, delete_staged
from ..tables.formats.manifest import DataFile
from .plan import StepDestination
from .sections import Good, Route
from .settings import PipelineSettings
from .staged_messages import PASSED
from .step_output import DESTINATION
from .steps import EVERY, MESSAGES, default_columns, every_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .sink import PipelineWriter

LOGGER: Final = "SQLQueryContextLogger"
"""The logger in which PySpark repeats, with stack traces, what it raises."""
TIME_ZONE: Final = "spark.sql.session.timeZone"
_NO_COLUMN: Final = (pa.types.is_null, pa.types.is_duration, pa.types.is_interval)


@contextmanager
def _use_utc(spark: SparkSession) -> Iterator[None]:
    """Evaluate steps and conditions in UTC: a session of the user's own is in the zone of its machine."""
    before = spark.conf.get(TIME_ZONE)
    spark.conf.set(TIME_ZONE, "UTC")
    try:
        yield
    finally:
        spark.conf.set(TIME_ZONE, before or "UTC")


def resolve_step_schema(spark: SparkSession, settings: PipelineSettings) -> pa.Schema:
    """Return the columns of the steps. Raises SettingError with the first problem of steps, conditions or columns."""
    schema, found = examine(spark, settings)
    if schema is None or found:
        raise SettingError(found[0])
    return schema


def examine(spark: SparkSession, settings: PipelineSettings) -> tuple[pa.Schema | None, list[str]]:
    """Return the columns of the steps (None if a step is invalid) and every problem, without reading messages."""
    contract, name = settings.contract, settings.name
    every = spark.createDataFrame([], schema_of(every_column(contract)))
    with quiet(LOGGER), _use_utc(spark):
        try:
            frame = apply_steps(spark, settings, every)
            schema = _schema_of(name, frame)
        except SettingError as error:
            return None, [str(error)]
        sections: list[tuple[str, Route | Good]] = [
            *((f"route[{at + 1}]", route) for at, route in enumerate(settings.document.route)),
            ("good", settings.document.good),
        ]
        found: list[str] = []
        for key, section in sections:
            if isinstance(section, Route):
                try:
                    frame.filter(F.expr(section.where))
                except AnalysisException as error:
                    found.append(f"{name}: {key}.where: {_explain_error(error, section.where)}")
            found += [
                f"{name}: {key}.columns: the steps return no column {column!r}{did_you_mean(column, schema.names)}"
                for column in section.columns or ()
                if column not in schema.names
            ]
    return schema, found


def apply_steps(spark: SparkSession, settings: PipelineSettings, every: DataFrame) -> DataFrame:
    """Return the result of the steps on ``every``, lazily. Raises SettingError, with the position, for invalid SQL."""
    shown = [column for column in default_columns(settings.contract) if column in every.columns]
    every.createOrReplaceTempView(EVERY)
    frame = every.select(*(F.col(f"`{column}`") for column in shown))
    for at, step in enumerate(settings.document.step):
        frame.createOrReplaceTempView(MESSAGES)
        try:
            # anything but a query would be done at once
            spark._jsparkSession.sessionState().sqlParser().parseQuery(step.sql)
            frame = spark.sql(step.sql)
        except AnalysisException as error:
            raise SettingError(f"{settings.name}: step[{at + 1}].sql: {_explain_error(error, step.sql)}") from None
    return frame


class Steps:
    """Passes the messages of a batch that passed the checks to the steps, and publishes the result."""

    def __init__(self, spark: SparkSession, writer: PipelineWriter) -> None:
        self._spark = spark
        self._writer = writer

    def publish(self, batch: StagedBatch) -> None:
        """Run the steps on a batch that tasks have staged, and publish it. Raises LocalError if a step fails."""
        writer = self._writer
        passed = [file for file in batch.files if file.kind == PASSED]
        judged = StagedBatch([_drop_files(result, passed) for result in batch.written])
        try:
            # a batch that is refused need not go through the steps
            writer.admit(judged)
            writer.publish(StagedBatch(judged.written, self._make_rows(passed)))
        finally:
            delete_staged(writer.state, passed)

    def _make_rows(self, passed: Sequence[DataFile]) -> list[StagedStepRows]:
        writer = self._writer
        try:
            with quiet(LOGGER), _use_utc(self._spark):
                frame = apply_steps(self._spark, writer.job.settings, self._read(self._spark, passed))
                rows = _assign_destinations(frame, writer.job.plan.results).mapInArrow(
                    _make_stage(writer), "derived string"
                )
                return [StagedStepRows.parse(row.derived) for row in rows.collect()]
        except PySparkException as error:
            raise (cause(error) or self._step_error(error)) from None

    def _read(self, spark: SparkSession, passed: Sequence[DataFile]) -> DataFrame:
        schema = schema_of(self._writer.job.plan.tables[0].projection)
        if not passed:
            return spark.createDataFrame([], schema)
        staged = self._writer.state.staged
        return spark.read.schema(schema).parquet(*((staged / file.staged).as_uri() for file in passed))

    def _step_error(self, error: PySparkException) -> LocalError:
        settings = self._writer.job.settings
        texts = [step.sql for step in settings.document.step]
        return LocalError(
            f"pipeline {settings.id!r}: the steps of {settings.name} failed: {_explain_error(error, *texts)}\n"
            "Nothing of this batch was published; correct the step and run it again"
        )


def _make_stage(writer: PipelineWriter) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that stages the rows of a task and yields one text per task."""

    def staged(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        result = writer.stage_rows(rows, task_number(), attempt_name())
        yield pa.record_batch({"derived": pa.array([result.text()], pa.string())})

    return staged


def _assign_destinations(frame: DataFrame, results: Sequence[StepDestination]) -> DataFrame:
    """Add the number of its destination to each row: the first whose condition is true; null counts as false."""
    tried = [F.when(F.expr(one.where), F.lit(at)) for at, one in enumerate(results) if one.where is not None]
    return frame.withColumn(DESTINATION, F.coalesce(*tried, F.lit(len(results) - 1)))


def _drop_files(written: StagedRange, passed: Sequence[DataFile]) -> StagedRange:
    return StagedRange(written.piece, tuple(entry for entry in written.files if entry[1] not in passed), written.counts)


def _schema_of(name: str, frame: DataFrame) -> pa.Schema:
    """Return the columns of the last step, all nullable, since Spark's nullability is only a guess."""
    names = [column.lower() for column in frame.columns]
    if twice := next((column for column in names if names.count(column) > 1), None):
        raise SettingError(
            f"{name}: the last step returns the column {twice!r} twice; give one another name: … AS other"
        )
    fields: list[pa.Field[Any]] = []
    for field in frame.schema.fields:
        try:
            type_ = arrow_schema(type(frame.schema)([field])).field(0).type
        except PySparkException:
            type_ = pa.null()
        if any(no(type_) for no in _NO_COLUMN):
            raise SettingError(
                f"{name}: the last step returns the column {field.name!r} of type {field.dataType.simpleString()}, "
                "which no table can hold; CAST it to another"
            )
        fields.append(pa.field(field.name, type_))
    return pa.schema(fields)


_PLACE = re.compile(r"\(line (\d+), pos (\d+)\)")
_NOISE = re.compile(
    r"^\s*\[[\w.]+\] |\s*SQLSTATE: \w+.*|\s*\(line \d+, pos \d+\).*|\s*Search path:.*|\s*== SQL.*", re.DOTALL
)


def _explain_error(error: PySparkException, *texts: str) -> str:
    """Return Spark's message about a text, without plans, and below it the position in the text."""
    message = str(error)
    sentence = " ".join(_NOISE.sub("", message).split())
    # Spark 3.5 calls a condition an error class, and says places only as line and column
    condition = error.getCondition() if hasattr(error, "getCondition") else error.getErrorClass()
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        missing = (error.getMessageParameters() or {}).get("relationName", "").strip("`")
        known = (MESSAGES, EVERY)
        sentence = f"view {missing!r} does not exist{did_you_mean(missing, known)}; a step reads {' or '.join(known)}"
    place = _place_of(error, message, texts)
    return sentence if place is None else f"{sentence}\n{place}"


def _place_of(error: PySparkException, message: str, texts: Sequence[str]) -> str | None:
    found = _PLACE.search(message)
    if found is not None:
        line, column, width = int(found[1]) - 1, int(found[2]), 1
        lines = texts[0].splitlines()
        return _point_at(lines[line], column, width) if line < len(lines) else None
    for context in (error.getQueryContext() if hasattr(error, "getQueryContext") else None) or ():
        fragment = context.fragment()
        text = next((text for text in texts if text[context.startIndex() :].startswith(fragment)), None)
        if text is not None and fragment != text:
            before = text[: context.startIndex()]
            start = before.rfind("\n") + 1
            line_text = text[start:].split("\n", 1)[0]
            column = len(before) - start
            return _point_at(line_text, column, min(len(fragment), len(line_text) - column))
    return None


def _point_at(line: str, column: int, width: int) -> str:
    return f"  {line}\n  {' ' * column}{'^' * max(1, width)}"
