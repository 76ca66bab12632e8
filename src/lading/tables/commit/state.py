"""The directory in which a pipeline keeps its state: its identity, its checkpoint, its manifests, its lock."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from ...model.errors import LocalError
from ...runtime.private_files import open_private
from ..formats.manifest import Manifests
from ..plan.offsets import OffsetsDocument
from ..storage.files import (
    OWN,
    STAGED,
    make_directory,
    make_local_directory,
    name_from,
    read_document,
    remove_empty,
    write_document,
)
from ..storage.object_path import TablePath
from .checkpoint import Checkpoint

NAME: Final = "pipeline.json"
RUN_LOCK: Final = "run.lock"
COMMIT_LOCK: Final = "commit.lock"


@dataclass(frozen=True)
class PipelineStateDirectory:
    """One pipeline's state below ``directory``; it belongs to one run at a time."""

    directory: Path
    pipeline: str

    @property
    def own(self) -> Path:
        """The directory that holds it all."""
        return self.directory / OWN

    @property
    def checkpoint(self) -> Checkpoint:
        """The batch that was begun last."""
        return Checkpoint(self.own / "checkpoint")

    @property
    def staged(self) -> Path:
        """Return the directory for staged files that belong to no table."""
        return self.own / STAGED

    @property
    def manifests(self) -> Manifests:
        """The manifests."""
        return Manifests(self.own / "manifests", self.pipeline)

    @property
    def published(self) -> int:
        """The number of the last manifest all of whose files were published; 0 before the first."""
        known = read_document(self.own / "published.json")
        return 0 if known is None else int(known["number"])

    def note_published(self, number: int) -> None:
        """Write down that all files up to manifest ``number`` are published."""
        write_document(self.own / "published.json", {"number": number})

    @property
    def begin(self) -> OffsetsDocument:
        """Return the offsets at which the first batch began, by topic and partition."""
        return read_document(self.own / "begin.json") or {}

    def note_begin(self, positions: OffsetsDocument) -> None:
        """Keep the offsets at which the first batch begins."""
        write_document(self.own / "begin.json", positions)

    @property
    def has_begun(self) -> bool:
        """Whether any run has found its start."""
        known = ("begin.json", "published.json", "refused.json", "delivered.json")
        return (
            self.checkpoint.exists
            or any((self.own / name).exists() for name in known)
            or bool(self.manifests.numbers())
        )

    def withdraw(self) -> None:
        """Delete the state of a run that was refused before it published anything. Only that run may call it."""
        shutil.rmtree(self.checkpoint.directory, ignore_errors=True)
        for name in ("begin.json", NAME, "run.json", RUN_LOCK, COMMIT_LOCK):
            (self.own / name).unlink(missing_ok=True)
        # another run may keep files there
        remove_empty(self.manifests.directory, self.staged, self.own)

    @classmethod
    def open(
        cls, directory: Path, owner: str, what: Literal["topic", "pipeline"] = "topic", *, lost: str | None = None
    ) -> PipelineStateDirectory:
        """Open the state in ``directory``, or create it.

        ``owner`` is the topic that is ingested, or the id of a pipeline; a new state gets the name ``lost`` if that is
        the one that its tables know. Raises LocalError if the state belongs to another owner, or the directory cannot
        be written to.
        """
        path = directory / OWN / NAME
        known = read_document(path)
        if known is None:
            make_directory("the state directory", directory)
            # a unique name: a table allows or refuses writers by it
            name = lost or f"{name_prefix(owner) or what}-{secrets.token_hex(4)}"
            known = {"version": 1, "pipeline": name, "of": what, "owner": owner}
            make_local_directory(directory / OWN / "manifests")
            write_document(path, known)
        if (known["of"], known["owner"]) != (what, owner):
            renamed = (
                f'write id = "{known["owner"]}" in its section [pipeline] if this is the same pipeline under another '
                "file name, else "
            )
            raise LocalError(
                f"the state in {directory} belongs to {known['of']} {known['owner']!r}, not to {owner!r}; "
                f"{renamed if known['of'] == what == 'pipeline' else ''}name another table or another state directory"
            )
        return cls(directory, known["pipeline"])

    @contextmanager
    def running(self) -> Iterator[str]:
        """Be the only run of this pipeline while the block runs; yield its token.

        Raises LocalError if another process runs it.
        """
        try:
            file = open(self.own / RUN_LOCK, "a+", opener=open_private)  # noqa: SIM115
        except FileNotFoundError:
            raise self._withdrawn_error() from None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                raise LocalError(
                    f"another run writes with the state in {self.directory} (process {file.read().strip() or '?'}); "
                    "wait until it ends, or name another table"
                ) from None
            known = read_document(self.own / NAME)
            if known is None or known["pipeline"] != self.pipeline:
                raise self._withdrawn_error()
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            token = secrets.token_hex(8)
            with self.committing(None):
                write_document(self.own / "run.json", {"run": token, "process": os.getpid()})
            yield token

    @contextmanager
    def committing(self, run: str | None) -> Iterator[None]:
        """Hold the commit lock; LocalError when ``run`` is not the present run any more.

        A run that lost its lock, as with a file system that went away, may reach its commit after a new one has begun:
        the token stops it.
        """
        with open(self.own / COMMIT_LOCK, "a", opener=open_private) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            present: Any = read_document(self.own / "run.json")
            if run is not None and (present is None or present["run"] != run):
                raise LocalError(
                    f"another run took over the state in {self.directory}; this one publishes nothing more"
                )
            yield

    def _withdrawn_error(self) -> LocalError:
        return LocalError(
            f"the state in {self.directory} was deleted meanwhile, as the run that began it was refused; run this again"
        )


def name_prefix(owner: str) -> str:
    """Return what the name of a state begins with, before its random part."""
    return re.sub(r"[^a-z0-9]+", "-", owner.lower()).strip("-")[:40]


def table_in_state(state: PipelineStateDirectory, table: TablePath) -> str:
    """Return a table as manifests name it: a URL, or relative to the state directory, so that both can be moved."""
    return name_from(state.directory, table)
