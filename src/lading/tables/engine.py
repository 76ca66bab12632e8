"""The engine of ingest and pipelines: recovery, start, batches, and the clean-up after a run.

A run reads sources, stages files in the tasks of an executor, and publishes each batch with one manifest. Whatever
stops it, the next run continues at the end of the manifests: every message is in the tables once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ..client.patience import Patience
from ..model.errors import CorruptLog, LadingError, LocalError, directory_error
from ..runtime.private_files import make_private_directory
from .commit.staging import schema_words
from .commit.state import PipelineStateDirectory, table_in_state
from .commit.table_commit import StagedBatch, check_schema, delete_uncommitted, find_changed_files, recover
from .executor import LOOK_INTERVAL_S, Executor, Stage
from .formats.directory import DEFAULT_FORM, OWNER
from .formats.manifest import Manifest
from .formats.partitions import Partitions
from .formats.registry import new_table, open_table
from .micro_batches import MicroBatchPlanner, run_batches
from .plan.offsets import OffsetsDocument
from .plan.ranges import OffsetRange
from .storage.files import OWN, make_directory, read_document
from .storage.object_path import TablePath
from .topic_tables import table_of_topic

if TYPE_CHECKING:
    import pyarrow as pa

    from .plan.source_planner import SourcePlanner


LOG: Final = logging.getLogger("lading.tables")


@dataclass(frozen=True)
class TableRun:
    """One run of an ingest or of a pipeline, as the engine needs it."""

    name: str
    """Owner of the run, as messages to people begin: ``the table ./flights``, ``pipeline 'flights'``."""
    state: PipelineStateDirectory
    planners: Sequence[SourcePlanner]
    schemas: dict[TablePath, pa.Schema]
    """Every table that the run writes, with its columns; tables of topics are added with their first messages."""
    resume_command: str
    deliver: Callable[[Manifest], None] = lambda manifest: None
    """Carries out the side effects of a published manifest, such as sending to topics; may be called again for the same
    one."""
    forms: dict[TablePath, str] = field(default_factory=dict)
    """The form of every table that is not of Parquet files."""
    partitions: dict[TablePath, Partitions] = field(default_factory=dict)
    """How tables are divided; those that are not named have no partitions."""
    topic_schemas: Mapping[TablePath, pa.Schema] = field(default_factory=dict)
    """The columns by location with ``{topic}``, which stands for one table for each topic."""

    private: frozenset[TablePath] = frozenset()
    """Tables that are for their owner alone, whatever the umask is, if this run makes them on a file system."""

    def add_tables_of(self, topic: str) -> list[TablePath]:
        """Add the tables of a topic to those that the run writes; returns those that are new.

        Raises LocalError for a name that a table cannot have, and for a table that the run writes already.
        """
        added = []
        for place, schema in self.topic_schemas.items():
            table = table_of_topic(place, topic)
            if self._places_of_topics.setdefault(table, place) != place or (
                table in self.schemas and table not in self._places_of_topics
            ):
                raise LocalError(
                    f"{self.name}: the table {table} of topic {topic!r} is that of another destination, too; give one "
                    "of them another directory"
                )
            if table not in self.schemas:
                self.schemas[table] = schema
                self.forms[table] = self.forms.get(place, DEFAULT_FORM)
                self.partitions[table] = self.partitions.get(place, Partitions())
                added.append(table)
        return added

    @cached_property
    def _places_of_topics(self) -> dict[TablePath, TablePath]:
        return dict.fromkeys(self.schemas, self.state.directory)

    @property
    def places(self) -> list[TablePath]:
        """Return every directory in which files are staged."""
        return list({*self.schemas, self.state.directory})


class RunStart(NamedTuple):
    """Start of a run: the last manifest, and the positions of sources that the checkpoint does not have."""

    last: Manifest | None
    positions: OffsetsDocument
    damages: tuple[str, ...] = ()
    """A sentence for each manifest of which data files no longer exist, or are not as they were."""


def claim_table(run: TableRun, table: TablePath) -> None:
    """Make a table this run's own. Raises LocalError if it holds data of another writer."""
    if table in run.private and isinstance(table, Path):
        try:
            make_private_directory(table)
        except OSError as error:
            raise directory_error("the table", table, error) from None
    new_table(run.forms.get(table, DEFAULT_FORM), table, run.partitions.get(table, Partitions())).claim(
        run.state.pipeline
    )


def add_known_tables(run: TableRun) -> None:
    """Add the tables of topics that earlier runs wrote."""
    if not run.topic_schemas:
        return
    last = run.state.manifests.last()
    for topic in dict.fromkeys([*run.state.begin, *({} if last is None else last.positions)]):
        for table in run.add_tables_of(topic):
            if read_document(table / OWN / OWNER) is None:
                del run.schemas[table]


def _prepare_tables(run: TableRun, ranges: Sequence[OffsetRange]) -> None:
    """Create the tables of topics whose first messages are about to be written."""
    for topic in dict.fromkeys(piece.topic for piece in ranges) if run.topic_schemas else ():
        for table in run.add_tables_of(topic):
            make_directory("the table", table)
            claim_table(run, table)
            # a run that ended before its first batch was published may have left files
            open_table(table).sweep(())
            open_table(table).prepare(run.schemas[table])


def finish_last_batch(run: TableRun, *, take_over: bool = False) -> int:
    """Finish the last manifest and delete staged files that nothing needs; returns how many. No task may run.

    With ``take_over`` a state that is older than its tables continues at their end.
    """
    return recover(run.state, run.places, run.deliver, resume_command=run.resume_command, take_over=take_over)


def begin(run: TableRun, *, resume: bool) -> RunStart:
    """Complete an interrupted run, and determine the positions at which this one starts.

    Without a checkpoint these are the end of the manifests, which takes ``resume``, else the beginning of the first
    run.

    Raises LocalError if a table's columns would change other than by additions, or if there are manifests without
    their checkpoint.
    """
    finish_last_batch(run, take_over=resume)
    problems = find_changed_files(run.state, run.schemas)
    for problem in problems:
        LOG.warning("%s", problem.sentence)
    damages = tuple(problem.sentence for problem in problems if problem.loses_rows)
    state, last = run.state, run.state.manifests.last()
    if last is not None:
        for table, schema in run.schemas.items():
            check_schema(table, last.schemas.get(table_in_state(state, table), {}), schema_words(schema))
        if not resume and not state.checkpoint.exists:
            raise LocalError(
                f"{run.name} has published up to manifest {last.number}, but its checkpoint is missing from "
                f"{state.checkpoint.directory}. To continue where the manifests end: {run.resume_command}"
            )
    for table, schema in run.schemas.items():
        open_table(table).prepare(schema)
    if resume:
        state.checkpoint.archive()
    _note_begin(run)
    first, done = state.begin, {} if last is None else last.positions
    known = dict.fromkeys([*first, *done])
    return RunStart(last, {topic: {**first.get(topic, {}), **done.get(topic, {})} for topic in known}, damages)


def require_files(run: TableRun, start: RunStart) -> None:
    """Raise CorruptLog if data files were missing or damaged when a run began; what is new is in the tables by now."""
    if start.damages:
        raise CorruptLog(f"{run.name} has lost rows, and what is new was added: {'; '.join(start.damages)}")


def _note_begin(run: TableRun) -> None:
    """Keep the first offset of each topic, once: empty partitions are in no manifest, ``latest`` is the first run's."""
    known = run.state.begin
    fresh: OffsetsDocument = {}
    for planner in run.planners:
        fresh |= planner.initial_offsets(known)
    if fresh:
        run.state.note_begin({**known, **fresh})


def drive(
    run: TableRun,
    start: RunStart,
    executor: Executor,
    *,
    stage: Stage,
    publish: Callable[[StagedBatch], None],
    on_poll: Callable[[], None],
    stopped: Callable[[], bool],
    batch_rows: int,
    interval_s: float | None,
) -> None:
    """Stage the ranges of batch after batch in tasks and publish each, until what was there at the start is done.

    With ``interval_s`` a batch begins at this interval without end, and the run waits for a server that went away; the
    batch that was interrupted begins again as the checkpoint has it. ``on_poll`` is called meanwhile and after each
    batch. When ``stopped`` returns true, a run with ``interval_s`` ends, and another one raises KeyboardInterrupt.
    Files staged for a batch that is not published are deleted. Errors of ours are raised unchanged, whichever process
    they come from.
    """

    def check() -> None:
        on_poll()
        if stopped():
            raise KeyboardInterrupt

    pause = pausing(check)
    patience = Patience(f"a server of {run.name}", pause, LOG)

    def do_batch(ranges: Sequence[OffsetRange]) -> None:
        def work() -> None:
            _prepare_tables(run, ranges)
            publish(StagedBatch(executor.write(stage, ranges)))
            # here already: a run that is stopped while it publishes does not get to its next pause
            patience.reset()

        executor.run_watched(work, check)
        on_poll()

    def pause_between(seconds: float) -> None:
        patience.reset()
        pause(seconds)

    def do_batches(last: Manifest | None) -> None:
        try:
            run_batches(
                MicroBatchPlanner(run.planners, batch_rows), run.state.checkpoint, start.positions, last, do_batch,
                interval_s=interval_s, pause=pause_between,
            )  # fmt: skip
        except Exception as error:
            delete_uncommitted(run.state, run.places)
            raise executor.original_error(error) from None

    try:
        if interval_s is None:
            do_batches(start.last)
        else:
            _follow(run, start.last, do_batches, patience)
    except KeyboardInterrupt:
        on_poll()
        delete_uncommitted(run.state, run.places)
        if interval_s is None:
            raise


def _follow(
    run: TableRun, last: Manifest | None, do_batches: Callable[[Manifest | None], None], patience: Patience
) -> None:
    """Call ``do_batches`` with the last manifest, again whenever a server that went away may be back.

    Raises every other error.
    """
    failed = False
    while True:
        try:
            if failed:
                # a batch may have its manifest and not yet all that belongs to it
                finish_last_batch(run)
                last = run.state.manifests.last()
            do_batches(last)
        except LadingError as error:
            failed = True
            for planner in run.planners:
                # a new connection to a server that is down fails at once, an old one only after all its retries
                planner.disconnect()
            patience.wait(error)


def pausing(on_poll: Callable[[], None]) -> Callable[[float], None]:
    """Return a function that waits, and calls ``on_poll``, which may raise, at once and at short intervals."""

    def pause(seconds: float) -> None:
        until = time.monotonic() + seconds
        on_poll()
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_INTERVAL_S))
            on_poll()

    return pause
