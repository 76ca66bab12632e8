"""The table path: a topic into a table, each message exactly once, in Arrow from end to end.

The driver plans offset ranges and keeps the checkpoint, an executor distributes them as tasks; decoding, typing,
checking and the writing of files stay in Arrow inside the tasks; the driver publishes a batch with one manifest
(docs/reference/spark.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from ..columns.contract import parse_columns
from ..model.errors import SettingError
from ..model.printable import join_for_shell
from ..registry.payload_form import inline_schema, parse_payload_form
from ..transports.fetched import States
from . import engine
from .commit.staging import TableJob, schema_words, write_range
from .commit.state import PipelineStateDirectory
from .commit.table_commit import StagedBatch, StagedRange, commit
from .commit.takeover import open_state
from .executor import Executor
from .failures import translate_disk_errors
from .formats.data_files import COMPRESSION, FILE_BYTES
from .formats.directory import DEFAULT_FORM
from .formats.partitions import Partitions
from .formats.registry import split_target
from .plan.options import SourceOptions
from .plan.ranges import OffsetRange
from .plan.source_planner import SourcePlanner
from .scan.schema import table_schema
from .storage.files import local_directory, make_directory, table_location
from .storage.object_path import TablePath
from .storage.storage import StorageReferences
from .topic_tables import has_topic, parent_of_topic_tables, require_topic_alone, table_of_topic
from .upkeep.schedule import UpkeepRecord
from .watch import ManifestWatch
from .withdrawal import RunWithdrawal, remove_made_directories

ALL_COLUMNS: Final = "stream, topic, partition, offset, state, timestamp, id, checksum, key, headers, payload"
BATCH_ROWS: Final = 4_000_000
"""Messages per batch, and so per manifest, by default."""
RANGE_ROWS: Final = 1_000_000
"""Messages per task by default: a task itself costs as much as some 50,000 messages."""
FOLLOW_INTERVAL_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """Progress of an ingest: rows written by this run, messages still waiting, rows per second, batches.

    ``lag_by_topic`` has ``messages``, ``bytes``, ``seconds`` (age of the oldest message that waits) and ``source``.
    """

    rows: int
    lag: int
    rows_per_s: float
    batches: int
    files: int
    size_bytes: int
    seconds: float
    lag_by_topic: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IngestReport:
    """Result of one run. ``read`` counts messages before ``where``, ``bad_values`` header values that became null.

    ``unreadable_times`` are messages whose own time is outside the years 1 to 9999, and null in the table, and
    ``long_values`` those whose value is too long for the name of a partition, and null in a directory of Parquet files.
    """

    rows: int
    files: int
    size_bytes: int
    rows_per_s: float
    batches: int
    read: int
    bad_values: int
    seconds: float
    table: TablePath
    manifests: Path
    unreadable_times: int = 0
    long_values: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSettings:
    """How an ingest reads a topic and writes its table. A later run of the same table may have other settings.

    * ``columns``: fields and typed headers as in ``read_arrow``; None for all fields. ``where``: selects messages.
    * ``state_dir``: directory of checkpoint and manifests; None for the table's own.
    * ``follow``: a batch every ``interval_s`` seconds until interrupted, instead of one run up to the end of the topic.
    * ``starting``: where the first run begins; ``ending``: where a run ends that does not follow, ``"latest"`` for the
      end of the topic as it is when the run begins. Both take ``"earliest"``, ``"latest"``, an offset, a time (UTC
      without a zone), or offsets by partition. ``states``: of which messages.
    * ``max_rows``: messages per batch, and so per manifest; ``max_rows_per_partition``: messages per task.
    * ``verify_checksum``: None for on if the payload is among the columns.
    * ``on_bad_value``: ``"null"`` or ``"fail"``, for a header value that its column's type cannot hold.
    * ``resume``: begin a new checkpoint where the manifests end, if the old one is lost or belongs to another writer.
    * ``partition_by``: how the table is divided (``["day(timestamp)", "carrier"]``); never changes for a table.
    * ``storage``: how the object store of the table is reached, by references
      (``{"region": "eu-west-1", "secret_access_key_env": "LAKE_SECRET", …}``), which each process follows.
    * ``transport``: options of the source's transport.
    * ``payload``: how payloads are read, by the keys of ``[payload]`` in a contract (``{"format": "avro", …}``).
    * ``topics``, ``topic_pattern``: several topics instead of one, by name or by a regular expression that matches
      whole names; topics that are created later and match are read from their beginning.
    """

    columns: str | None = None
    where: str | None = None
    state_dir: str | Path | None = None
    max_rows: int | None = None
    follow: bool = False
    interval_s: float = FOLLOW_INTERVAL_S
    starting: str = "earliest"
    ending: str = "latest"
    states: States = "available"
    verify_checksum: bool | None = None
    on_bad_value: str = "null"
    fail_on_data_loss: bool = True
    resume: bool = False
    file_bytes: int = FILE_BYTES
    compression: str = COMPRESSION
    max_rows_per_partition: int | None = None
    transport: Mapping[str, Any] = field(default_factory=dict)
    partition_by: Sequence[str] = ()
    storage: StorageReferences | Mapping[str, str] | None = None
    payload: Mapping[str, str] | None = None
    topics: Sequence[str] = ()
    topic_pattern: str | None = None

    def check_counts(self) -> None:
        """Raise SettingError if a count is below 1, or if a run that follows is to end somewhere."""
        require_no_end_of_following("--ending", self.ending, follow=self.follow)
        for name in ("max_rows", "max_rows_per_partition", "file_bytes"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise SettingError(f"{name} is {count}; it takes a whole number from 1 on")

    def source_options(self, from_: str, topic: str | None) -> SourceOptions:
        """Return the options by which the planner reads the topics. Raises SettingError if a value is not allowed."""
        topics = {"topic": topic or "", "topics": ",".join(self.topics), "topic_pattern": self.topic_pattern or ""}
        options = SourceOptions.parse(
            {
                "from": from_,
                **topics,
                "startingOffsets": self.starting,
                "endingOffsets": self.ending,
                "on_bad_value": self.on_bad_value,
                "maxRowsPerPartition": str(self.max_rows_per_partition or RANGE_ROWS),
            }
            | {f"transport.{name}": str(value) for name, value in self.transport.items()}
        )
        return replace(options, fail_on_data_loss=self.fail_on_data_loss, states=self.states)

    def bind_storage(self, place: str) -> StorageReferences | None:
        """Use ``storage`` for the object store of a location, and all below it; return the references, or None."""
        if self.storage is None:
            return None
        given = self.storage
        references = (
            given if isinstance(given, StorageReferences) else StorageReferences.parse(given, Path.cwd(), "", "storage")
        )
        references.bind([place])
        return references

    def resume_command(self, options: SourceOptions, target: str, references: StorageReferences | None) -> str:
        """Return the command that a person types to continue after a lost checkpoint."""
        topics = options.topic_pattern or ",".join(options.topics) or options.topic
        words = ["lading", "ingest", topics, target, "--from", options.from_, "--resume"]
        words += ["--pattern"] if options.topic_pattern is not None else []
        words += ["--columns", self.columns] if self.columns is not None else []
        words += ["--where", self.where] if self.where is not None else []
        words += [word for level in self.partition_by for word in ("--partition-by", level)]
        words += ["--state", str(self.state_dir)] if self.state_dir is not None else []
        named = () if references is None or references.name else references.options
        words += [word for name, value in named for word in ("--storage", f"{name}={value}")]
        return join_for_shell(words)


DEFAULT_SETTINGS: Final = IngestSettings()


def ingest(
    executor: Executor,
    from_: str | Path,
    topic: str | None,
    to: str | Path,
    settings: IngestSettings = DEFAULT_SETTINGS,
    *,
    on_progress: Callable[[IngestProgress], None] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> IngestReport:
    """Copy the messages of ``topic`` into the table ``to``; a later call continues there.

    Without ``topic`` the settings select several, and ``{topic}`` in ``to`` makes one table of each. Without any that
    match, a run with ``settings.follow`` waits for one, and another one raises UnknownTopic.

    Returns when everything up to the end of the topic at the start is written, or with ``settings.follow`` when
    ``stopped`` returns true; any other run raises KeyboardInterrupt then.

    For readers of manifests a batch is in the table whole or not at all, and every message is in it once after any
    crash and restart, whatever settings changed in between. Raises LocalError if the table belongs to another writer,
    its columns would change other than by additions, another run is active, or messages would be duplicated;
    DataLoss, ChecksumMismatch and the transport's errors as they were raised in the workers.
    """
    from_ = str(from_) if "://" in str(from_) else str(Path(from_).absolute())
    form, place = split_target(str(to))
    table = table_location("table", place)
    target = str(table) if form == DEFAULT_FORM else f"{form}:{table}"
    require_topic_alone("table", place)
    is_divided = has_topic(table)
    # the directory around all tables if there is one a topic
    around = parent_of_topic_tables(str(table)) if is_divided else str(table)
    state_dir = around if settings.state_dir is None else settings.state_dir
    state_at = local_directory("the state directory (--state)", state_dir)
    references = settings.bind_storage(around)
    text = settings.columns if settings.columns is not None else ALL_COLUMNS
    payload = None if settings.payload is None else inline_schema(settings.payload)
    projection = parse_columns(text, parse_payload_form(payload))
    schema = table_schema(projection)
    _refuse_names_equal_but_for_case(schema.names)
    partitions = Partitions.parse(settings.partition_by, schema)
    settings.check_counts()
    options = settings.source_options(from_, topic)
    verify_checksum = settings.verify_checksum
    if verify_checksum is None:
        verify_checksum = "payload" in projection.fields
    planner = SourcePlanner(options)
    try:
        planner.resolve_name()
        options = planner.options
        if not settings.follow:
            planner.require_topics()
        resume_command = settings.resume_command(options, target, references)
        made = [Path(around)] if isinstance(table, Path) else [table]
        with remove_made_directories(*made, state_at), translate_disk_errors(f"the table {table}"):
            if isinstance(table, Path) or not is_divided:
                make_directory("the table", *made)
            known = [table_of_topic(table, name) for name in planner.names]
            state = open_state(
                state_at, _name_owner(options), "topic", dict.fromkeys(known), resume_command,
                take_over=settings.resume,
            )  # fmt: skip
            with state.running() as token:
                job = TableJob(
                    from_, text, str(table), str(state.directory), state.pipeline, token,
                    resume_command,
                    where=settings.where, states=settings.states, verify_checksum=verify_checksum,
                    fail_on_bad_value=settings.on_bad_value == "fail", fail_on_data_loss=settings.fail_on_data_loss,
                    file_bytes=settings.file_bytes, compression=settings.compression, transport=options.transport,
                    storage=None if references is None else references.document(), payload=payload,
                )  # fmt: skip
                run = engine.TableRun(
                    f"the table {table}", state, [planner], {} if is_divided else {table: schema}, job.resume_command,
                    forms={table: form}, partitions={table: partitions},
                    topic_schemas={table: schema} if is_divided else {},
                )  # fmt: skip
                engine.add_known_tables(run)
                with RunWithdrawal(run) as withdrawal:
                    job.reading.condition()
                    withdrawal.claim_tables()
                    start = engine.begin(run, resume=settings.resume)
                    withdrawal.keep()
                    watch = ManifestWatch(
                        state, [planner], start.last, start.positions,
                        lambda manifest: None if on_progress is None else on_progress(_describe_progress(watch)),
                    )  # fmt: skip
                    writer = TableWriter(job)
                    engine.drive(
                        run, start, executor, stage=writer.stage_range, publish=writer.publish,
                        on_poll=watch.poll_manifests, stopped=stopped, batch_rows=settings.max_rows or BATCH_ROWS,
                        interval_s=settings.interval_s if settings.follow else None,
                    )  # fmt: skip
                # what attempts left that failed and were tried again
                engine.finish_last_batch(run)
                engine.require_files(run, start)
                if watch.batches:
                    UpkeepRecord(state.own).hint_small_files([*run.schemas], state.manifests.last())
                return _report(watch, table, state)
    finally:
        planner.close()


class TableWriter:
    """Work of tasks on a range, and of the driver on a batch."""

    def __init__(self, job: TableJob) -> None:
        self.job = job

    def stage_range(self, piece: OffsetRange, attempt: str) -> StagedRange:
        """Write the messages of one range to staged files. Called in a task."""
        return write_range(self.job, piece, attempt)

    def publish(self, batch: StagedBatch) -> None:
        """Publish what the tasks of a batch staged, exactly once."""
        state = PipelineStateDirectory(Path(self.job.state), self.job.pipeline)
        words = schema_words(self.job.schema)
        schemas = {self.job.table_in_state(result.piece.topic): words for result in batch.written}
        commit(state, self.job.run, batch, schemas, resume_command=self.job.resume_command)


def _describe_progress(watch: ManifestWatch) -> IngestProgress:
    rows, seconds = watch.counts["written"], watch.seconds
    return IngestProgress(
        rows, watch.lag, rows / seconds, watch.batches, watch.files, watch.size_bytes, seconds, watch.lag_by_topic
    )


def _report(watch: ManifestWatch, table: TablePath, state: PipelineStateDirectory) -> IngestReport:
    rows, seconds, counts = watch.counts["written"], watch.seconds, watch.counts
    return IngestReport(
        rows, watch.files, watch.size_bytes, rows / seconds, watch.batches, counts["read"], counts["bad_values"],
        seconds, table, state.manifests.directory, counts["unreadable_times"], counts["long_values"],
    )  # fmt: skip


def require_no_end_of_following(name: str, ending: object, *, follow: bool) -> None:
    """Raise SettingError if a run that continues until it is stopped has an end."""
    if follow and ending not in (None, "latest"):
        raise SettingError(f"{name} is {ending!r}, and a run with --follow has no end; leave one of them out")


def _name_owner(options: SourceOptions) -> str:
    """Return the owner of a table's state: the topic or the pattern; a list of topics may grow."""
    return "several topics" if options.topics else options.topic_pattern or options.topic


def _refuse_names_equal_but_for_case(names: Sequence[str]) -> None:
    first: dict[str, str] = {}
    for name in names:
        other = first.setdefault(name.lower(), name)
        if other != name:
            raise SettingError(
                f"columns {other!r} and {name!r}: they differ only in case, which Spark, Delta and Iceberg do not tell "
                f'apart; name one otherwise, for example header_{name} … from "{name}"'
            )
