"""A state that is older than its tables, or lost: the last manifest is taken over from a table that has a copy."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal

from ...model.errors import LocalError
from ..formats.directory import OWNER
from ..formats.manifest import TABLE, Manifest, manifest_text, read_manifest, write_manifest
from ..formats.registry import open_table
from ..storage.files import OWN, read_document, write_document
from ..storage.object_path import ObjectPath, TablePath
from .state import PipelineStateDirectory, name_prefix, table_in_state

LOG: Final = logging.getLogger("lading.tables")
COPY: Final = "last-manifest.json"
"""The name of a copy, in a table's own directory, of the last manifest that was published or is about to be."""

COMMITS: Final = "commits"
"""The copy of a manifest in the own directory of a table on an object store; only one run can put it."""


def keep_copy(table: TablePath, manifest: Manifest) -> None:
    """Copy the manifest that is about to be published to a table of the pipeline."""
    if isinstance(table, ObjectPath):
        require_first(table, manifest)
    elif (table / OWN).is_dir():
        # a table that the settings no longer name may be deleted
        write_manifest(table / OWN / COPY, manifest)


def open_state(
    directory: Path, owner: str, what: Literal["topic", "pipeline"], tables: Iterable[TablePath], resume_command: str,
    *, take_over: bool,
) -> PipelineStateDirectory:  # fmt: skip
    """Open the state in ``directory``, created if neither there nor beside the tables is a trace of one.

    Raises LocalError, with the command that mends it, if it is lost: the tables have a manifest of this owner. With
    ``take_over`` it is created anew under the name that the tables know, without manifests.
    """
    if (directory / OWN / "pipeline.json").exists():
        return PipelineStateDirectory.open(directory, owner, what)
    known: dict[str, TablePath] = {}
    for table in tables:
        name = _find_pipeline(table)
        if name is not None and name.rpartition("-")[0] == (name_prefix(owner) or what):
            known.setdefault(name, table)
    if len(known) != 1:
        return PipelineStateDirectory.open(directory, owner, what)
    ((name, table),) = known.items()
    if not take_over:
        raise LocalError(
            f"the table {table} is written by pipeline {name!r}, and there is no state in {directory}; name its state "
            "directory or another table, or, if the state is lost and no other run writes the table, continue where "
            f"the table ends: {resume_command}"
        )
    return PipelineStateDirectory.open(directory, owner, what, lost=name)


def _find_pipeline(table: TablePath) -> str | None:
    """Return the pipeline of which a table has a manifest."""
    if isinstance(table, ObjectPath):
        document = read_document(table / OWN / OWNER)
        name = None if document is None else str(document["pipeline"])
        return name if name is not None and _last_first(table, name, 0) else None
    path = table / OWN / COPY
    return read_manifest(path).pipeline if path.exists() else None


def require_first(table: ObjectPath, manifest: Manifest) -> None:
    """Put a copy of the manifest beside the table, as the first run to do so. Raises LocalError if another one was.

    A store has no lock that two machines share, but only one of them can put an object of this name.
    """
    try:
        _copy_path(table, manifest.pipeline, manifest.number).create_bytes(manifest_text(manifest).encode())
    except FileExistsError:
        raise LocalError(
            f"the table {table} has manifest {manifest.number} of pipeline {manifest.pipeline!r} with other files than "
            "this one's: a second run with a copy of its state wrote it; continue with the state of that run"
        ) from None


def _copy_path(table: ObjectPath, pipeline: str, number: int) -> ObjectPath:
    return table / OWN / COMMITS / f"{pipeline}-{number:08d}.json"


def _last_first(table: TablePath, pipeline: str, known: int) -> int:
    """Return the number of the last manifest after ``known`` that has a copy beside a table."""
    if not isinstance(table, ObjectPath):
        copy = _read_copy(pipeline, table, known)
        return known if copy is None else copy.number
    last = known
    for name, _ in (table / OWN / COMMITS).walk(after=f"{pipeline}-{known:08d}.json"):
        lead, _, number = name.removesuffix(".json").rpartition("-")
        if lead != pipeline:
            break
        last = int(number)
    return last


def require_newest(
    state: PipelineStateDirectory, tables: Iterable[TablePath], resume_command: str, *, take_over: bool
) -> None:
    """Raise LocalError, with the command that mends it, if a table has a later manifest than the state.

    With ``take_over`` the state gets that manifest instead, which alone says what is published and at which positions
    to continue. A warning lists what the manifests in between had besides: counts for reports, and messages that waited
    to be sent.
    """
    last = state.manifests.last()
    known = 0 if last is None else last.number
    ahead: list[tuple[TablePath, int]] = []
    for table in tables:
        committed = max(open_table(table).find_last_commit(state.pipeline), _last_first(table, state.pipeline, known))
        if committed > known:
            ahead.append((table, committed))
    if not ahead:
        return
    copies = [_read_copy(state.pipeline, table, committed) for table, committed in ahead]
    newest = max((copy for copy in copies if copy is not None), key=lambda copy: copy.number, default=None)
    table, committed = max(ahead, key=lambda one: one[1])
    sentence = (
        f"the table {table} holds manifest {committed} of pipeline {state.pipeline!r}, but the last one in "
        f"{state.manifests.directory} is {known}: what the missing ones list would be duplicated"
    )
    if newest is None or newest.number < committed:
        raise LocalError(f"{sentence}; restore them, or write another table")
    if not take_over:
        raise LocalError(
            f"{sentence}; restore them, or, if no other run writes this table, continue where it ends: {resume_command}"
        )
    for place, number in ahead:
        if number == newest.number:
            # a second run with a copy of the state may have written its own manifest there before it was refused
            key, own = (state.pipeline, number), table_in_state(state, place)
            open_table(place).require_commit(
                key, [one for one in newest.files if one.kind == TABLE and one.table == own]
            )
    state.manifests.write(newest)
    LOG.warning(
        "the state in %s is taken over from %s, where manifest %d is the last; reports have no counts of manifests "
        "%d to %d", state.directory, table, newest.number, known + 1, newest.number - 1,
    )  # fmt: skip
    errands = [file for file in newest.files if file.kind != TABLE and not (state.staged / file.staged).exists()]
    if errands:
        write_document(state.own / "delivered.json", {"number": newest.number})
        LOG.warning(
            "what manifest %d lists besides tables (%s) was kept with the state that is gone, and may have been sent "
            "or not: it is not sent again", newest.number, ", ".join(f"{file.rows} {file.kind}" for file in errands),
        )  # fmt: skip


def _read_copy(pipeline: str, table: TablePath, committed: int) -> Manifest | None:
    path = _copy_path(table, pipeline, committed) if isinstance(table, ObjectPath) else table / OWN / COPY
    if not path.exists():
        return None
    manifest = read_manifest(path)
    return manifest if manifest.pipeline == pipeline and manifest.number >= committed else None
