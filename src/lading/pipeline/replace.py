"""A range of messages read again, by the settings of now, and its rows replaced in every table of the pipeline."""

from __future__ import annotations

import dataclasses
import fcntl
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from ..model.errors import LocalError, SettingError
from ..runtime.private_files import open_private
from ..tables.commit.state import PipelineStateDirectory
from ..tables.commit.table_commit import StagedBatch, StagedRange, replace_ranges
from ..tables.executor import Executor
from ..tables.failures import translate_disk_errors
from ..tables.formats.directory import OWNER, REPLACING_RANGE
from ..tables.formats.manifest import TABLE, Manifest, same_ranges
from ..tables.formats.registry import open_table
from ..tables.plan.planning import Planner
from ..tables.plan.ranges import OffsetRange, merge_ranges, split_ranges
from ..tables.storage.files import OWN, delete_staged_files, resolve_name
from ..tables.storage.object_path import TablePath
from ..tables.upkeep.replacement import RowsOfRanges, find_rows_of_ranges
from ..transports.open import is_queue
from .plan import Plan
from .run import ensure_topics, make_job, open_planners
from .settings import PipelineSettings
from .side_effects import apply_side_effects
from .sink import PipelineWriter
from .state import existing


@dataclass(frozen=True)
class ReplaceReport:
    """Result of a replacement, real or with ``dry_run``: its ranges, and by table the rows before and after."""

    ranges: Sequence[OffsetRange]
    read: int
    counts: Mapping[str, int]
    tables: Mapping[str, tuple[int, int]]
    """The removed rows of each table, and the rows that replace them."""
    dry_run: bool
    manifest: int | None = None
    topics: Sequence[str] = field(default=())
    """Topics of the pipeline, to which nothing is sent again."""


def replace_range(
    settings: PipelineSettings,
    executor: Executor,
    starting: str,
    ending: str,
    *,
    dry_run: bool = False,
    confirm: Callable[[ReplaceReport], None] = lambda report: None,
    stopped: Callable[[], bool] = lambda: False,
) -> ReplaceReport:
    """Read a range of the sources again, and put it in the place of its rows in good, routed and quarantine tables.

    ``starting`` and ``ending`` are places as ``starting`` of a source has them; of a time the message's own counts.
    Only messages that the pipeline has published are read. Each table changes in one commit, and the manifest says
    which ranges it replaced; after a crash the next run of the pipeline completes it, or nothing was changed. Copies
    for topics and states of messages are not made again. ``confirm`` is called with the counts before anything changes,
    and may raise; with ``dry_run`` nothing changes.

    Raises SettingError for a range that cannot be, LocalError if rows cannot be found by their place, or if messages
    of the range are not there any more.
    """
    if settings.document.step:
        raise SettingError(
            f"{settings.name}: rows that SQL steps made belong to no message, so that a range cannot be replaced; "
            "write new tables with another pipeline"
        )
    if any(is_queue(settings.url(source.from_)) for source in settings.document.source):
        raise SettingError(f"{settings.name}: a queue (nsq://) cannot be read again; leave its tables as they are")

    def check() -> None:
        if stopped():
            raise KeyboardInterrupt

    plan, state, bounded = Plan.of(settings), existing(settings), settings.with_range(starting, ending)
    with (
        translate_disk_errors(f"pipeline {settings.id!r}"),
        _lock_replacements(state),
        open_planners(bounded) as planners,
    ):
        last = state.manifests.last()
        if last is None:
            raise LocalError(f"pipeline {settings.id!r} has published nothing yet; run it first")
        by_topic = [planner for source in planners for planner in source.look_at_topics().values()]
        ranges = [piece for planner in by_topic for piece in _find_published_ranges(planner, last)]
        if not ranges:
            raise LocalError(
                f"no message from {starting} to {ending} is published by pipeline {settings.id!r}; name a range that "
                "it has read, or run it first"
            )
        tables = {resolve_name(state.directory, name) for name in last.schemas} | {*plan.schemas_of(last.positions)}
        settings.storage.bind(tables)
        _require_single(state, ranges)
        rows = RowsOfRanges(merge_ranges(ranges), by_topic=len(last.positions) > 1)
        _require_places(settings, plan, rows)
        _refuse_adopted(settings, tables)
        _delete_leftovers(state, tables, last)
        token = f"{REPLACING_RANGE}{secrets.token_hex(8)}"
        bounds = ensure_topics(settings, [planner.topic() for planner in by_topic])
        job = make_job(settings, state, token, planners, plan, (), bounds)
        writer = PipelineWriter(job)
        try:
            staged = _stage(executor, writer, ranges, check)
            found = {table: find_rows_of_ranges(open_table(table), rows, check) for table in sorted(tables, key=str)
                     if (table / OWN / OWNER).exists()}  # fmt: skip
            added = Counter[TablePath]()
            for file in staged.files:
                added[resolve_name(state.directory, file.table)] += file.rows
            counts = staged.counts
            report = ReplaceReport(
                rows.ranges, counts.get("read", 0), counts,
                {str(table): (one.rows, added[table]) for table, one in found.items()}, dry_run,
                topics=tuple(sorted(address.url for address in settings.topics.values())),
            )  # fmt: skip
            if dry_run:
                return report
            confirm(report)
            deliver = partial(_deliver, state, settings)
            manifest = replace_ranges(
                state, ranges, staged, resume_command=settings.command("--resume"), deliver=deliver
            )  # fmt: skip
        finally:
            _delete_leftovers(state, tables, state.manifests.last())
    return ReplaceReport(
        report.ranges, report.read, report.counts, report.tables, False, manifest.number, report.topics
    )  # fmt: skip


def _deliver(state: PipelineStateDirectory, settings: PipelineSettings, manifest: Manifest) -> None:
    apply_side_effects(state, manifest, settings)


@contextmanager
def _lock_replacements(state: PipelineStateDirectory) -> Iterator[None]:
    """Hold the lock of replacements; LocalError if another process holds it."""
    with open(state.own / "replace.lock", "a", opener=open_private) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LocalError(
                f"another process replaces a range of the pipeline with the state in {state.directory}; wait for it"
            ) from None
        yield


def _find_published_ranges(planner: Planner, last: Manifest) -> list[OffsetRange]:
    """Return the ranges of a source that are published. Raises LocalError if messages of them are deleted."""
    meta = planner.topic()
    start, end = planner.resolve_range(meta)
    published = last.covered.get(meta.topic_id.hex() if meta.topic_id else f"-{meta.name}", {})
    is_time = isinstance(planner.options.starting, Mapping) and set(planner.options.starting) == {"timestamp"}
    ranges: list[OffsetRange] = []
    for part in meta.partitions:
        mark, until, first = start[part.number], end[part.number], part.first_offset
        for low, high in published.get(str(part.number), ()):
            begin, stop = max(low, mark.offset), min(high, until.offset)
            if begin >= stop:
                continue
            # the first message kept is after a time also if those before it were of the range
            if begin < first or (is_time and low < begin == first):
                raise LocalError(
                    f"topic {meta.name!r}, partition {part.number}: retention deleted the messages before offset "
                    f"{first}, and the rows that they made in the range would be lost; begin at what is kept: "
                    "--from earliest, or an offset"
                )
            positions = {part.number: dataclasses.replace(mark, offset=begin)}
            stops = {part.number: dataclasses.replace(until, offset=stop)}
            ranges += split_ranges(meta.name, positions, stops, planner.options.max_rows_per_partition)
    return ranges


def _require_single(state: PipelineStateDirectory, ranges: Sequence[OffsetRange]) -> None:
    """Raise LocalError if tables have rows of two messages for an offset of the ranges, of which one is left.

    A topic that was deleted and made again counts from 0, and one that a recovery cut back gives offsets again.
    """
    ends: dict[tuple[str, int], tuple[str | None, int]] = {}
    before: Sequence[OffsetRange] = ()
    for number in state.manifests.numbers():
        manifest = state.manifests.read(number)
        if manifest.replaces or same_ranges(manifest.ranges, before):
            continue
        before = manifest.ranges
        for piece in manifest.ranges:
            topic_id, end = ends.get((piece.topic, piece.partition), (piece.topic_id, 0))
            if piece.resumed or piece.topic_id != topic_id:
                for wanted in ranges:
                    is_same = (wanted.topic, wanted.partition) == (piece.topic, piece.partition)
                    if is_same and wanted.start < end and piece.start < wanted.end:
                        raise LocalError(
                            f"topic {piece.topic!r}, partition {piece.partition}: its offsets from {piece.start} to "
                            f"{end - 1} were given to other messages before, as the topic was made anew or cut back; "
                            f"their rows have the same places, and would be lost; begin at offset {end} or later"
                        )
            ends[piece.topic, piece.partition] = piece.topic_id, max(end, piece.end)


def _require_places(settings: PipelineSettings, plan: Plan, rows: RowsOfRanges) -> None:
    for table, schema in plan.schemas.items():
        missing = [name for name in rows.columns if name not in schema.names]
        if missing:
            raise LocalError(
                f"{settings.name}: the table {table} has no column {missing[0]!r}, by which the rows of a range are "
                f"found; a table that can be replaced has {', '.join(rows.columns)}: write one from the start"
            )


def _refuse_adopted(settings: PipelineSettings, tables: set[TablePath]) -> None:
    """Raise LocalError for a table of another writer: rows of others may have the same partitions and offsets."""
    for table in sorted(tables, key=str):
        if (table / OWN / OWNER).exists() and open_table(table).is_adopted:
            raise LocalError(
                f"{settings.name}: the table {table} was made by another writer, whose rows may have the same places "
                "as those of a range, and would be lost; delete the rows with `lading table delete`, and write them "
                "to a table of the pipeline's own"
            )


def _stage(
    executor: Executor, writer: PipelineWriter, ranges: Sequence[OffsetRange], check: Callable[[], None]
) -> StagedBatch:
    """Classify the messages again, and stage them for their tables alone."""
    staged: list[StagedRange] = []

    def work() -> None:
        staged.extend(executor.write(writer.stage_range, ranges))

    try:
        executor.run_watched(work, check)
    except Exception as error:
        raise executor.original_error(error) from None
    return StagedBatch([
        StagedRange(one.piece, tuple((at, file) for at, file in one.files if file.kind == TABLE), one.counts)
        for one in staged
    ])  # fmt: skip


def _delete_leftovers(state: PipelineStateDirectory, tables: set[TablePath], last: Manifest | None) -> None:
    """Delete what was staged for a replacement that did not come to its manifest. The lock of replacements is held."""
    needed = set() if last is None else {file.staged for file in last.files}
    for place in {*tables, state.directory}:
        delete_staged_files(place, REPLACING_RANGE, needed)
