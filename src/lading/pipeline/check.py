"""Checks of a pipeline without running it: settings, filters, sources, tables, states; all problems at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..model.errors import LadingError
from ..tables.commit.staging import schema_words
from ..tables.commit.state import PipelineStateDirectory as PipelineState
from ..tables.commit.state import table_in_state
from ..tables.commit.table_commit import check_schema, require_in_place
from ..tables.failures import translate_disk_errors
from ..tables.formats.directory import DEFAULT_FORM
from ..tables.formats.partitions import Partitions
from ..tables.formats.registry import new_table
from ..tables.plan.spooling import Spooled
from ..tables.storage.files import OWN, check_directory, read_document
from .plan import Plan
from .run import check_servers, source_options
from .settings import PipelineSettings
from .settings_problems import problems
from .side_effects import check_topic, open_server

if TYPE_CHECKING:
    from ..spark.session import SparkSession


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that would stop a run, and the part of the pipeline that has it."""

    part: str
    sentence: str


def check(settings: PipelineSettings, session: Callable[[], SparkSession]) -> list[Problem]:
    """Return every problem that can be found without reading messages; an empty list if a run would start.

    ``session`` is called for a Spark session if there are SQL steps, whose columns only Spark knows.
    """
    found = [Problem("settings", sentence) for sentence in problems(settings)]
    if found:
        return found
    plan = Plan.of(settings)
    if settings.document.step:
        # before the import, which needs PySpark: without it this raises a sentence
        spark = session()
        from .sql import examine

        made, sentences = examine(spark, settings)
        if made is None or sentences:
            return [*(Problem("step", sentence) for sentence in sentences), *_check_sources(settings, plan)]
        plan = Plan.of(settings, made)
    return [*_check_sources(settings, plan), *_check_tables(settings, plan)]


def _check_sources(settings: PipelineSettings, plan: Plan) -> Iterator[Problem]:
    metas = []
    for source in settings.document.source:
        try:
            options = source_options(settings, source)
            from_ = options.queue if isinstance(options, Spooled) else options.from_
            with open_server(from_, settings.transport(source)) as transport:
                selection = source.selection
                found = [transport.topic(source.topic)] if source.topic is not None else selection.find(transport)
                if not found:
                    raise selection.nothing_found_error(transport)
                metas += [(source, meta) for meta in found]
        except LadingError as error:
            yield Problem("source", str(error))
    try:
        check_servers(settings, plan, metas)
    except LadingError as error:
        yield Problem("set_state", str(error))
    for key, (server, topic) in settings.topics.items():
        try:
            check_topic(server, topic, settings.access(server))
        except LadingError as error:
            yield Problem(key.partition(".")[0], str(error))


def _check_tables(settings: PipelineSettings, plan: Plan) -> Iterator[Problem]:
    directory = Path(settings.state_directory)
    unwritable = list(_check_writable(directory, plan))
    yield from unwritable
    if unwritable:
        return
    known = read_document(directory / OWN / "pipeline.json")
    state = None
    if known is not None:
        if (known["of"], known["owner"]) != ("pipeline", settings.id):
            yield Problem(
                "state",
                f"the state in {directory} belongs to {known['of']} {known['owner']!r}, not to {settings.id!r}; name "
                "another table or another state directory",
            )
            return
        state = PipelineState(directory, known["pipeline"])
    last = None if state is None else state.manifests.last()
    for table, schema in plan.schemas.items():
        try:
            table_now = new_table(plan.forms.get(table, DEFAULT_FORM), table, plan.partitions.get(table, Partitions()))
            table_now.check_claim(None if state is None else state.pipeline)
            with translate_disk_errors(f"the table {table}"):
                table_now.check_log()
                if state is not None:
                    require_in_place(state, [table], settings.command("--resume"))
            if state is not None and last is not None:
                check_schema(table, last.schemas.get(table_in_state(state, table), {}), schema_words(schema))
        except LadingError as error:
            yield Problem("table", str(error))


def _check_writable(state: Path, plan: Plan) -> Iterator[Problem]:
    for part, place in (("state", state), *(("table", table) for table in plan.schemas)):
        if part == "state" and state in plan.schemas:
            continue
        try:
            check_directory("the state directory" if part == "state" else "the table", place)
        except LadingError as error:
            yield Problem(part, str(error))
