"""From staged files to a table: the steps of a commit, each of which may be the last before a crash."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from ...model.errors import CorruptLog, LocalError
from ..failures import translate_disk_errors
from ..formats.directory import MISSING, OWNER
from ..formats.interface import Rename
from ..formats.manifest import TABLE, Covered, DataFile, Manifest, Schemas, advance, cover, overlap, same_ranges
from ..formats.registry import open_table
from ..formats.rollback import Rollback, RolledBack
from ..plan.ranges import OffsetRange, merge_ranges
from ..storage.files import OWN, move_file, resolve_name
from ..storage.object_path import TablePath
from ..upkeep.replacement import RowsOfRanges, replace_rows
from .state import PipelineStateDirectory
from .takeover import keep_copy, require_newest

MANIFESTS_CHECKED: Final = 1_000
"""This many of the newest manifests are checked when a run begins."""
OLDER_CHECKED_S: Final = 1.0
"""And as many older ones as this takes: some ten thousand on a local disk, few in an object store."""
HASHED_BYTES_MAX: Final = 256 << 20
"""At most this many bytes of the newest files are hashed then, some tenths of a second; older files are compared by
size."""
LOG: Final = logging.getLogger("lading.tables")


@dataclass(frozen=True, slots=True)
class StagedRange:
    """Result of a task for one range: the files it staged (with their first offsets) and its counts."""

    piece: OffsetRange
    files: tuple[tuple[int, DataFile], ...]
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class StagedStepRows:
    """Result of a task for rows made from messages, without a range: its number, files and counts."""

    task: int
    files: tuple[DataFile, ...]
    counts: Mapping[str, int]

    def text(self) -> str:
        """Return the result as JSON, to be read by ``parse``: it travels in a row of Spark."""
        files = [file.document() for file in self.files]
        return json.dumps({"task": self.task, "files": files, "counts": dict(self.counts)})

    @classmethod
    def parse(cls, text: str) -> StagedStepRows:
        """Parse what ``text`` returned."""
        held = json.loads(text)
        return cls(held["task"], tuple(DataFile(**row) for row in held["files"]), held["counts"])


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """The results of all tasks of one batch."""

    written: Sequence[StagedRange]
    derived: Sequence[StagedStepRows] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Return the counts of all tasks."""
        counts: Counter[str] = Counter()
        for result in self.written:
            counts.update(result.counts)
        for made in self.derived:
            counts.update(made.counts)
        return dict(counts)

    @property
    def files(self) -> list[DataFile]:
        """Every staged file."""
        return [
            *(file for result in self.written for _, file in result.files),
            *(file for result in self.derived for file in result.files),
        ]


def commit(
    state: PipelineStateDirectory,
    run: str,
    batch: StagedBatch,
    schemas: Schemas,
    *,
    resume_command: str,
    rename: Rename = move_file,
    check_batch: Callable[[Sequence[OffsetRange], Mapping[str, int]], None] = lambda ranges, counts: None,
    deliver: Callable[[Manifest], None] = lambda manifest: None,
) -> Manifest | None:
    """Publish a batch: exactly once, however often this is tried and wherever it stops.

    The manifest is written first, then files are renamed into their tables. A batch with the same source ranges as the
    last manifest was committed before: its new files are deleted, and the commit of the old ones is completed. Raises
    LocalError if published messages would be duplicated. Returns None for a batch without ranges. ``check_batch`` may
    refuse a batch, by raising, before anything of it is published. ``deliver`` carries out the side effects of a
    published manifest, and may be called again for the same one.
    """
    with translate_disk_errors(f"publishing a batch of {state.pipeline!r}"), state.committing(run):
        ranges = merge_ranges(result.piece for result in batch.written)
        staged = batch.files
        if not ranges:
            return None
        last = state.manifests.last()
        if last is not None:
            if same_ranges(last.ranges, ranges):
                delete_staged(state, staged)
                rename_staged_files(state, last, rename=rename, resume_command=resume_command)
                deliver(last)
                return last
            # a batch is only committed after the one before it was complete; make sure of it
            doubled = overlap(last.covered, ranges)
            if doubled is not None:
                delete_staged(state, staged)
                raise LocalError(
                    f"topic {doubled.topic!r}, partition {doubled.partition}, offsets {doubled.start} to "
                    f"{doubled.end - 1}: messages among them are published already (manifest {last.number} and "
                    f"before), and the checkpoint does not know it. To continue where the manifests end: "
                    f"{resume_command}"
                )
        manifest = _build_manifest(state, run, batch, ranges, schemas, last)
        check_batch(ranges, manifest.counts)
        state.manifests.write(manifest)
        rename_staged_files(state, manifest, rename=rename, resume_command=resume_command)
        deliver(manifest)
        return manifest


def amend(state: PipelineStateDirectory, batch: StagedBatch, *, resume_command: str) -> Manifest:
    """Publish what became of messages of the last manifest after it was published: files and counts of its ranges.

    That is a manifest of its own, whose counts are added to those before. To be called while its state is held for a
    commit. A batch that is repeated finds the ranges published, as before.
    """
    last = state.manifests.last()
    assert last is not None
    manifest = _build_manifest(state, last.run, batch, last.ranges, {}, last)
    state.manifests.write(manifest)
    rename_staged_files(state, manifest, resume_command=resume_command)
    return manifest


def replace_ranges(
    state: PipelineStateDirectory,
    ranges: Sequence[OffsetRange],
    batch: StagedBatch,
    *,
    resume_command: str,
    deliver: Callable[[Manifest], None] = lambda manifest: None,
) -> Manifest:
    """Put what was staged for ranges that are published in the place of their rows, in every table of the state.

    The manifest is written first and says which ranges: whatever stops this, the next run of the pipeline completes it.
    Positions stay as they are, so that a run next to this one, which waits for the commit alone, continues.
    """
    with translate_disk_errors(f"replacing a range of {state.pipeline!r}"), state.committing(None):
        last = state.manifests.last()
        assert last is not None
        # of a run that was interrupted
        rename_staged_files(state, last, resume_command=resume_command)
        deliver(last)
        last = state.manifests.last()
        assert last is not None
        made = _build_manifest(state, last.run, batch, merge_ranges(ranges), {}, last)
        counts = {f"replaced.{name}": count for name, count in batch.counts.items()}
        manifest = replace(
            made, ranges=last.ranges, covered=last.covered, positions=last.positions, counts=counts,
            replaces=made.ranges,
        )  # fmt: skip
        state.manifests.write(manifest)
        rename_staged_files(state, manifest, resume_command=resume_command)
        deliver(manifest)
        return manifest


def rename_staged_files(
    state: PipelineStateDirectory, manifest: Manifest, *, resume_command: str, rename: Rename = move_file
) -> None:
    """Publish every file of a manifest in its table, once; ``find_changed_files`` reports what happens to them later.

    Raises CorruptLog if a file is neither staged nor published, or is not what the manifest says; LocalError, with the
    command that mends it, if another writer took a table back to before the last manifest.
    """
    if state.published >= manifest.number:
        return
    # all of them before any file is shown: of two runs with copies of one state, one gets none
    for place in sorted({resolve_name(state.directory, name) for name in manifest.schemas}, key=str):
        keep_copy(place, manifest)
    by_table = _by_table(state, manifest)
    if manifest.replaces:
        # a table may have rows of the ranges and get none
        by_table = {resolve_name(state.directory, name): [] for name in manifest.schemas} | by_table
    for directory, files in by_table.items():
        key = manifest.pipeline, manifest.number
        try:
            if not manifest.replaces:
                open_table(directory).commit(key, files, rename)
            elif (directory / OWN / OWNER).exists():
                rows = RowsOfRanges(manifest.replaces, by_topic=len(manifest.positions) > 1)
                replace_rows(open_table(directory), key, files, rows)
        except RolledBack as error:
            raise _rollback_error(state, directory, error.rollback, resume_command) from None
    state.note_published(manifest.number)


def require_in_place(
    state: PipelineStateDirectory, tables: Iterable[TablePath], resume_command: str, *, put_back: bool = False
) -> None:
    """Raise LocalError, with the command that mends it, if another writer took back what a table had.

    With ``put_back`` it is shown again instead, with a warning.
    """
    for place in tables:
        table = open_table(place)
        found = table.find_rollback(state.pipeline)
        if found is None:
            continue
        files = _files_of(state, place, found)
        if not put_back or not files:
            raise _rollback_error(state, place, found, resume_command)
        table.put_back((state.pipeline, found.committed), found, files)
        LOG.warning("%s; they are in it again", _rollback_sentence(state, place, found, files))


def _files_of(state: PipelineStateDirectory, table: TablePath, rollback: Rollback) -> dict[int, Sequence[DataFile]]:
    """Return a table's files of the manifests that were rolled back and of the last one; none if one is missing."""
    numbers = {*rollback.numbers, rollback.committed}
    if not numbers.issubset(state.manifests.numbers()):
        return {}
    for number in sorted(numbers):
        if state.manifests.read(number).replaces:
            raise LocalError(
                f"the table {table} was taken back by another writer ({rollback.by}) to before manifest {number}, "
                "which replaced a range; restore the version of the table with it, or write another table"
            )
    listed = {number: _by_table(state, state.manifests.read(number)).get(table, []) for number in sorted(numbers)}
    return {number: files for number, files in listed.items() if files}


def _rollback_error(
    state: PipelineStateDirectory, table: TablePath, rollback: Rollback, resume_command: str
) -> LocalError:
    files = _files_of(state, table, rollback)
    sentence = _rollback_sentence(state, table, rollback, files)
    if not files:
        return LocalError(
            f"{sentence}, and the state in {state.directory} does not have these manifests; restore them, or write "
            "another table from the start"
        )
    return LocalError(
        f"{sentence}; if they are to stay out, write another table, and to put them back and continue: {resume_command}"
    )


def _rollback_sentence(
    state: PipelineStateDirectory, table: TablePath, rollback: Rollback, files: Mapping[int, Sequence[DataFile]]
) -> str:
    numbers = [number for number in rollback.numbers if number in files or not files]
    which = f"manifest {numbers[0]}" if len(numbers) == 1 else f"manifests {numbers[0]} to {numbers[-1]}"
    rows = f"the {sum(file.rows for number in numbers for file in files[number])} rows" if files else "the rows"
    return (
        f"the table {table} was taken back by another writer ({rollback.by}) to before {rows} of {which} of pipeline "
        f"{state.pipeline!r}"
    )


def _by_table(state: PipelineStateDirectory, manifest: Manifest) -> dict[TablePath, list[DataFile]]:
    found: dict[TablePath, list[DataFile]] = {}
    for file in manifest.files:
        if file.kind == TABLE:
            found.setdefault(table_path(state, file), []).append(file)
    return found


def delete_staged(state: PipelineStateDirectory, files: Iterable[DataFile]) -> None:
    """Delete staged files that nothing needs."""
    for file in files:
        staging_path(state, file).unlink(missing_ok=True)


def delete_uncommitted(state: PipelineStateDirectory, tables: Iterable[TablePath]) -> None:
    """After a batch that failed: delete every staged file, except those that the last manifest lists, as a commit that
    stops half-way still has files to publish. Files of tasks that still run are deleted at the next start."""
    with state.committing(None):
        last = state.manifests.last()
        _sweep(tables, set() if last is None else {file.staged for file in last.files})


def recover(
    state: PipelineStateDirectory,
    tables: Collection[TablePath],
    deliver: Callable[[Manifest], None] = lambda manifest: None,
    *,
    resume_command: str = "",
    take_over: bool = False,
) -> int:
    """Finish the last manifest and delete all other staged files; return their number. Call it while no tasks run.

    Raises CorruptLog if manifests are missing. Raises LocalError if a table has later manifests than the state, or if
    another writer rolled the table back. With ``take_over`` the state gets the table's last manifest instead, and the
    rows that were rolled back are shown again.
    """
    with state.committing(None):
        require_newest(state, tables, resume_command, take_over=take_over)
        require_in_place(state, tables, resume_command, put_back=take_over)
        last = state.manifests.last()
        known = 0 if last is None else last.number
        if state.published > known:
            raise CorruptLog(
                f"pipeline {state.pipeline!r} published manifest {state.published}, but the last one in "
                f"{state.manifests.directory} is {known}: what the missing ones list would be duplicated; restore them"
            )
        if last is not None:
            rename_staged_files(state, last, resume_command=resume_command)
            deliver(last)
        return _sweep(tables)


class FileProblem(NamedTuple):
    """A sentence on published files that are not as they were, and whether rows of them are lost or others."""

    sentence: str
    loses_rows: bool = False


def find_changed_files(state: PipelineStateDirectory, places: Iterable[TablePath] = ()) -> list[FileProblem]:
    """Return a problem for each manifest of which files, or itself, are not as they were published.

    The newest MANIFESTS_CHECKED are looked at, older ones for OLDER_CHECKED_S. Files are compared by their size, and
    from the newest one on also by their bytes, of which HASHED_BYTES_MAX are read. Of these tables and those in
    ``places`` that have a log, every file that it lists is looked for: compaction and other writers write files that no
    manifest has. Files whose ranges were all replaced since are not missed.
    """
    problems = []
    left = HASHED_BYTES_MAX
    tables = {place: open_table(place) for place in places}
    told: set[TablePath] = set()
    replaced: Covered = {}
    deadline_s: float | None = None
    for count, number in enumerate(reversed(state.manifests.numbers())):
        if count >= MANIFESTS_CHECKED:
            now_s = time.monotonic()
            deadline_s = now_s + OLDER_CHECKED_S if deadline_s is None else deadline_s
            if now_s >= deadline_s:
                break
        try:
            manifest = state.manifests.read(number)
        except CorruptLog as error:
            problems.append(FileProblem(f"{error}; what it published is not looked at"))
            continue
        changed: list[tuple[DataFile, TablePath, str]] = []
        for directory, files in _by_table(state, manifest).items():
            table = tables.get(directory) or tables.setdefault(directory, open_table(directory))
            for file in files:
                is_read = file.size_bytes <= left
                left -= file.size_bytes if is_read else 0
                change = table.find_change((manifest.pipeline, number), file, is_read=is_read)
                if change is not None:
                    changed.append((file, directory / file.name, change))
                    told.add(directory / file.name)
        is_replaced = cover(replaced, manifest.replaces or manifest.ranges) == replaced
        replaced = cover(replaced, manifest.replaces)
        if changed and not is_replaced:
            _, path, found = changed[0]
            others = f" (and {len(changed) - 1} more of its files)" if len(changed) > 1 else ""
            sentence = (
                f"table file {path} {found}{others}, with {sum(one.rows for one, _, _ in changed)} rows that manifest "
                f"{number} of pipeline {manifest.pipeline!r} published; restore {'them' if others else 'it'}"
            )
            problems.append(FileProblem(sentence, loses_rows=True))
    for directory, table in tables.items():
        if missing := [name for name in table.list_missing_files() if directory / name not in told]:
            others = f" (and {len(missing) - 1} more of its files)" if len(missing) > 1 else ""
            sentence = f"table file {directory / missing[0]} {MISSING}{others}, which the table's log lists; restore it"
            problems.insert(0, FileProblem(sentence, loses_rows=True))
    return problems[::-1]


def _sweep(tables: Iterable[TablePath], needed: Collection[str] = ()) -> int:
    return sum(open_table(table).sweep(needed) for table in tables)


def check_schema(table: TablePath, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise LocalError, which names the column, if a table's columns changed other than by additions."""
    for name, type_ in before.items():
        if name not in now:
            raise LocalError(
                f"the table {table} has the column {name!r} ({type_}), which is not among the columns any more; a "
                "table keeps its columns: name it again, or write another table"
            )
        if now[name] != type_:
            raise LocalError(
                f"the table {table} has the column {name!r} as {type_}, and now it would be {now[name]}; a table keeps "
                "its types: name the old type, another column, or another table"
            )


def table_path(state: PipelineStateDirectory, file: DataFile) -> TablePath:
    """Return the location of the table that a file belongs to."""
    return resolve_name(state.directory, file.table)


def staging_path(state: PipelineStateDirectory, file: DataFile) -> TablePath:
    """Return the path of a staged file of a batch."""
    return open_table(table_path(state, file)).staging_path(file)


def _directory_of(state: PipelineStateDirectory, file: DataFile) -> str:
    if not file.partition:
        return ""
    return f"{open_table(table_path(state, file)).partition_directory(file.partition)}/"


def _build_manifest(
    state: PipelineStateDirectory,
    run: str,
    batch: StagedBatch,
    ranges: Sequence[OffsetRange],
    schemas: Schemas,
    last: Manifest | None,
) -> Manifest:
    number = 1 if last is None else last.number + 1
    topics = sorted({piece.topic for piece in ranges})
    files = [
        replace(
            file,
            name=f"{_directory_of(state, file)}{state.pipeline}-{number:08d}-{topics.index(result.piece.topic):03d}-"
            f"{result.piece.partition:05d}-{first:020d}{Path(file.staged).suffix}",
        )
        if file.kind == TABLE
        else file
        for result in sorted(
            batch.written, key=lambda result: (result.piece.topic, result.piece.partition, result.piece.start)
        )
        for first, file in result.files
    ]
    files += [
        replace(
            file,
            name=f"{_directory_of(state, file)}{state.pipeline}-{number:08d}-sql-{result.task:05d}-{at:05d}"
            f"{Path(file.staged).suffix}",
        )
        for result in sorted(batch.derived, key=lambda result: result.task)
        for at, file in enumerate(result.files)
    ]
    return Manifest(
        state.pipeline, number, run, ranges, files, batch.counts,
        {**(last.schemas if last else {}), **schemas},
        cover(last.covered if last else {}, ranges), advance(last.positions if last else {}, ranges),
        time.time_ns() // 1000,
    )  # fmt: skip
