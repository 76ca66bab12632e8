"""Runs of a pipeline: up to the end of its sources at the start, or one batch after another until stopped."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..model.errors import DataLoss, LocalError, SettingError
from ..model.protocol import MessageBound
from ..settings.settings import Address
from ..tables import engine
from ..tables.commit.state import PipelineStateDirectory
from ..tables.commit.takeover import open_state
from ..tables.engine import RunStart, TableRun
from ..tables.executor import Executor
from ..tables.failures import translate_disk_errors
from ..tables.ingest import require_no_end_of_following
from ..tables.plan.options import SourceOptions
from ..tables.plan.source_planner import SourcePlanner
from ..tables.plan.spooling import resolve_spool
from ..tables.storage.files import resolve_name
from ..tables.storage.object_path import TablePath
from ..tables.topic_tables import has_topic
from ..tables.upkeep.schedule import INTERVALS_S, UpkeepRecord
from ..tables.withdrawal import RunWithdrawal, remove_made_directories
from ..transports.interface import Marking, TopicMeta
from ..transports.open import is_queue
from .job import PipelineJob, SourcePlace, schema_text
from .metrics import PipelineMetrics, serve_metrics
from .plan import Plan
from .progress import PipelineProgress, PipelineWatch, RunReport
from .sections import SourceSection
from .settings import PipelineSettings
from .side_effects import apply_side_effects, ensure_topic, open_server
from .sink import PipelineWriter
from .state import read_rejected_batch

if TYPE_CHECKING:
    from ..spark.session import SparkSession


__all__ = ["SESSION", "PipelineProgress", "RunReport", "run"]

LOG: Final = logging.getLogger("lading.pipeline")
UPKEEP_INTERVAL_S: Final = 60.0
SESSION: Final[dict[str, Any]] = {"spark.executorEnv.LADING_TASKS": "lading.pipeline.sink"}
"""Settings of a session that is created to run a pipeline: workers start with all that its tasks need loaded."""


def run(
    session: Callable[[], SparkSession],
    settings: PipelineSettings,
    *,
    follow: bool = False,
    accept_batch: bool = False,
    resume: bool = False,
    on_progress: Callable[[PipelineProgress], None] = lambda progress: None,
    metrics: Address | None = None,
    on_metrics: Callable[[Address], None] = lambda address: None,
    stopped: Callable[[], bool] = lambda: False,
    executor: Executor | None = None,
) -> RunReport:
    """Validate, route and publish all source messages; with ``follow`` keep running until interrupted.

    Every message that is read is in the good table, a route or quarantine exactly once, whatever crashes, and however
    the settings change in between. Tasks run on ``executor``, else on Spark: ``session`` is called for a session when
    all else is ready, and always if there are SQL steps. ``accept_batch`` publishes the one batch that the breaker
    rejected last; ``resume`` starts a new checkpoint at the end of the manifests. ``metrics`` is the address that
    serves metrics for Prometheus during the run, by default that of the settings; ``on_metrics`` is called with it.
    When ``stopped`` returns true, a run with ``follow`` ends, and any other raises KeyboardInterrupt.

    Raises LocalError if the breaker stops the run, and for tables of other writers, changed columns, a lost checkpoint;
    DataLoss if source messages were deleted; and the errors of transports.
    """
    if executor is not None and settings.document.step:
        raise SettingError(f"{settings.name}: SQL steps are run by Spark; leave them out, or run this on Spark")
    for sentence in settings.clear_secrets:
        LOG.warning("%s", sentence)
    for source in settings.document.source:
        require_no_end_of_following(f"source.ending of {settings.name}", source.ending, follow=follow)
    plan = Plan.of(settings)
    if settings.document.step:
        # before the import, which needs PySpark: without it this raises a sentence
        spark = session()
        from ..spark.session import is_connect
        from .sql import resolve_step_schema

        if is_connect(spark):
            raise SettingError(
                f"{settings.name}: SQL steps need a session of this process, not one of Spark Connect; leave them out, "
                "or run this by spark-submit"
            )

        plan = Plan.of(settings, resolve_step_schema(spark, settings))
    with translate_disk_errors(f"pipeline {settings.id!r}"), open_planners(settings) as planners:
        metas = look_at_topics(settings, planners, follow=follow)
        check_servers(settings, plan, metas)
        with remove_made_directories(Path(settings.state_directory), *plan.schemas):
            state = open_state(
                Path(settings.state_directory), settings.id, "pipeline",
                plan.schemas_of([meta.name for _, meta in metas]), settings.command("--resume"), take_over=resume,
            )  # fmt: skip
            with state.running() as token:
                table_run = to_table_run(settings, state, plan, planners)
                with RunWithdrawal(table_run) as withdrawal:
                    withdrawal.claim_tables()
                    bounds = ensure_topics(settings, [meta for _, meta in metas])
                    start = engine.begin(table_run, resume=resume)
                    accepted = _read_accepted_ranges(state, accept_batch=accept_batch)
                    job = make_job(settings, state, token, planners, plan, accepted, bounds)
                    withdrawal.keep()
                    address = metrics or settings.document.metrics.address
                    with _rename_options(settings), _serve_figures(settings, address, on_metrics) as shown:
                        watch = PipelineWatch(table_run, start, on_progress, shown)
                        _drive_engine(
                            session, executor, job, table_run, start, follow=follow, watch=watch, stopped=stopped
                        )
                engine.finish_last_batch(table_run)
                engine.require_files(table_run, start)
                report = watch.report(plan)
                if report.batches:
                    keep_in_shape(settings, state, table_run.schemas)
                return report


def keep_in_shape(
    settings: PipelineSettings,
    state: PipelineStateDirectory,
    tables: Iterable[TablePath],
    check: Callable[[], None] = lambda: None,
) -> None:
    """Optimize the tables if the file says so and it is due, else warn once of many small files."""
    record, interval_s = UpkeepRecord(state.own), INTERVALS_S.get(settings.document.table.optimize)
    if interval_s is None:
        record.hint_small_files(tables, state.manifests.last())
    else:
        record.optimize_if_due(tables, interval_s, time.time(), check)


def to_table_run(
    settings: PipelineSettings, state: PipelineStateDirectory, plan: Plan, planners: Sequence[SourcePlanner]
) -> TableRun:
    """Return the pipeline in the form that the engine runs."""
    if (last := state.manifests.last()) is not None:
        # a batch is finished in tables that the file does not name any more, too
        settings.storage.bind({resolve_name(state.directory, name) for name in last.schemas} - {*plan.schemas})
    by_topic = {place: schema for place, schema in plan.schemas.items() if has_topic(place)}
    table_run = TableRun(
        f"pipeline {settings.id!r}", state, planners, plan.schemas_of(()), settings.command("--resume"),
        lambda manifest: apply_side_effects(state, manifest, settings), dict(plan.forms), dict(plan.partitions),
        by_topic, frozenset({plan.quarantine}),
    )  # fmt: skip
    engine.add_known_tables(table_run)
    return table_run


@contextmanager
def open_planners(settings: PipelineSettings) -> Iterator[list[SourcePlanner]]:
    """Give a planner for each source, under the flat names of its topics; close them at the end."""
    planners: list[SourcePlanner] = []
    try:
        for source in settings.document.source:
            planner = SourcePlanner(source_options(settings, source))
            planners.append(planner)
            planner.resolve_name()
        yield planners
    finally:
        for planner in planners:
            planner.close()


def look_at_topics(
    settings: PipelineSettings, planners: Sequence[SourcePlanner], *, follow: bool
) -> list[tuple[SourceSection, TopicMeta]]:
    """Return each topic as it is now, with its source. Raises UnknownTopic if a run that does not follow has none."""
    found: list[tuple[SourceSection, TopicMeta]] = []
    names: set[str] = set()
    for source, planner in zip(settings.document.source, planners, strict=True):
        metas = (
            [one.topic() for one in planner.look_at_topics().values()] if follow else planner.require_topics().values()
        )
        for meta in metas:
            if meta.name in names:
                raise SettingError(
                    f"{settings.name}: two sources are the topic {meta.name!r}; positions are kept by topic: use two "
                    "pipelines"
                )
            names.add(meta.name)
            found.append((source, meta))
    return found


def source_options(settings: PipelineSettings, source: SourceSection) -> SourceOptions:
    """Return how a source is read. Raises SettingError for an invalid starting position or transport option."""
    try:
        options = SourceOptions.parse(_source_options(settings, source))
    except SettingError as error:
        text = str(error).replace("startingOffsets is", "source.starting is")
        raise SettingError(text.replace("endingOffsets is", "source.ending is")) from None
    return resolve_spool(options)


def _source_options(settings: PipelineSettings, source: SourceSection) -> dict[str, str]:
    place = {"from": settings.url(source.from_)}
    reached = {f"transport.{name}": str(value) for name, value in settings.transport(source).items()}
    if is_queue(place["from"]):
        place |= {"spool": settings.spool(source), "channel": source.channel or settings.id}
        if source.spool_keep_s is not None:
            place["spoolKeepS"] = str(source.spool_keep_s)
    elif (source.spool, source.spool_keep_s, source.channel) != (None, None, None):
        raise SettingError(
            f"{settings.name}: spool and channel are for queues (nsq://), not for {source.from_}; leave them out"
        )
    return {
        **place,
        "topic": source.topic or "",
        "topics": ",".join(source.topics or ()),
        "topic_pattern": source.topic_pattern or "",
        "startingOffsets": _place_text(source.starting),
        "endingOffsets": _place_text(source.ending),
        "failOnDataLoss": str(source.fail_on_data_loss).lower(),
        "states": source.states,
        "maxRowsPerPartition": str(settings.document.pipeline.max_rows_per_task),
        **reached,
    }


def _place_text(place: str | Mapping[str, Any]) -> str:
    return place if isinstance(place, str) else json.dumps(place)


def check_servers(settings: PipelineSettings, plan: Plan, sources: list[tuple[SourceSection, TopicMeta]]) -> None:
    """Raise LocalError if a route sets states and the server for that is not the one that owns the source."""
    if not any(one.state is not None for one in plan.destinations):
        return
    for source, meta in sources:
        url = settings.server(source)
        with open_server(url, settings.access(url)) as transport:
            if not isinstance(transport, Marking):
                raise LocalError(
                    f"{settings.name}: a route sets states, and at {url} none can be set; set_state takes a source "
                    "behind a broker of Lading's (lading://host:port, or iggy://host:port), or a data directory whose "
                    'broker is named: source.server = "lading://host:port"'
                )
            there = transport.topic(meta.name)
            # Iggy's own server is found out by asking
            transport.states(meta.name, 0, end=1)
        if there.topic_id != meta.topic_id:
            found = "is not the one in" if there.topic_id else "cannot be confirmed to be the one in"
            raise LocalError(
                f"{settings.name}: the topic {meta.name!r} at {url} {found} {source.from_}; name the broker "
                'of that directory: source.server = "lading://host:port"'
            )


def ensure_topics(settings: PipelineSettings, sources: Sequence[TopicMeta]) -> dict[str, MessageBound]:
    """Create the topics that messages are sent to, with as many partitions as the sources have, if they are missing.

    Returns the message bound of each, by URL, if its server reports it. Raises LocalError for one that takes no
    headers, and for one that is a source under another address.
    """
    partitions = max((len(meta.partitions) for meta in sources), default=1)
    bounds: dict[str, MessageBound] = {}
    for key, address in settings.topics.items():
        server, topic = address
        meta, bound = ensure_topic(server, topic, partitions, settings.access(server))
        bounds |= {} if bound is None else {address.url: bound}
        if meta.topic_id is not None and meta.topic_id in {one.topic_id for one in sources}:
            raise LocalError(
                f"{settings.name}: {key} {topic!r} at {server} is the topic that the pipeline reads, under another "
                "address: it would read its own copies again and again; name another one"
            )
    return bounds


def _read_accepted_ranges(state: PipelineStateDirectory, *, accept_batch: bool) -> tuple[Mapping[str, Any], ...]:
    if not accept_batch:
        return ()
    ranges = read_rejected_batch(state)
    if not ranges:
        raise LocalError("no rejected batch to accept since the last published one; rerun without --accept-batch")
    return ranges


def make_job(
    settings: PipelineSettings,
    state: PipelineStateDirectory,
    token: str,
    planners: list[SourcePlanner],
    plan: Plan,
    accepted: tuple[Any, ...],
    bounds: Mapping[str, MessageBound],
) -> PipelineJob:
    sources = [
        SourcePlace(
            planner.options.from_, settings.server(source), source.states, source.fail_on_data_loss,
            {} if is_queue(settings.url(source.from_)) else source.transport,
            None if source.topic_pattern else planner.names, source.topic_pattern,
        )
        for source, planner in zip(settings.document.source, planners, strict=True)
    ]  # fmt: skip
    return PipelineJob(
        settings.raw, str(settings.base), settings.name, str(state.directory), state.pipeline, token,
        settings.command("--resume"), settings.command("--accept-batch"), sources, accepted,
        None if plan.step_schema is None else schema_text(plan.step_schema), bounds,
    )  # fmt: skip


def _drive_engine(
    session: Callable[[], SparkSession],
    executor: Executor | None,
    job: PipelineJob,
    table_run: TableRun,
    start: RunStart,
    *,
    follow: bool,
    watch: PipelineWatch,
    stopped: Callable[[], bool],
) -> None:
    settings, writer = job.settings, PipelineWriter(job)
    options = settings.document.pipeline
    publish = writer.publish
    if executor is None:
        from ..spark.connect_executor import make_executor

        spark = session()
        executor = make_executor(spark, f"lading pipeline {settings.id}", table_run.name)
        if settings.document.step:
            from .sql import Steps

            publish = Steps(spark, writer).publish
    watch.start_clock()
    upkeep = Upkeep(settings, table_run, stopped)

    def poll() -> None:
        watch.poll_manifests()
        if follow:
            upkeep.poll()

    engine.drive(
        table_run, start, executor, stage=writer.stage_range, publish=publish, on_poll=poll,
        stopped=stopped, batch_rows=int(options.max_rows), interval_s=options.trigger if follow else None,
    )  # fmt: skip


class Upkeep:
    """Keeps the tables of a run that follows in shape; looked at once a minute, next to the batch that is written."""

    def __init__(self, settings: PipelineSettings, run: TableRun, stopped: Callable[[], bool]) -> None:
        self._settings = settings
        self._run = run
        self._stopped = stopped
        self._due_s = time.monotonic() + UPKEEP_INTERVAL_S

    def poll(self) -> None:
        """Optimize the tables, or warn of many small files, if that is due. Raises KeyboardInterrupt if stopped."""
        if time.monotonic() >= self._due_s:
            keep_in_shape(self._settings, self._run.state, self._run.schemas, self._check)
            self._due_s = time.monotonic() + UPKEEP_INTERVAL_S

    def _check(self) -> None:
        if self._stopped():
            raise KeyboardInterrupt


@contextmanager
def _serve_figures(
    settings: PipelineSettings, address: Address | None, on_metrics: Callable[[Address], None]
) -> Iterator[PipelineMetrics | None]:
    if address is None:
        yield None
        return
    figures = PipelineMetrics(settings.id)
    with serve_metrics(figures, address) as shown:
        on_metrics(shown)
        yield figures


@contextmanager
def _rename_options(settings: PipelineSettings) -> Iterator[None]:
    """Rename options of Spark's source in errors to the keys of the file."""
    try:
        yield
    except DataLoss as error:
        advice = f"fail_on_data_loss = false in [source] of {settings.name}"
        raise DataLoss(str(error).replace("failOnDataLoss=false", advice)) from None
