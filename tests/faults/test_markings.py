"""States, dead letters and marks through kills and power cuts: what was answered holds, each copy is there once."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lading.broker.core import dead_letters
from lading.log.catalog import FILE_NAME, Catalog
from lading.log.catalog_schema import Level
from tests import forked_command
from tests.faults import marking
from tests.faults.power import MemoryDisk, MemoryFile, PowerCuts


def _run(directory: Path, *points: int) -> list[dict[str, Any]]:
    directory.mkdir()
    command = [sys.executable, "-m", "tests.faults.marking", str(directory), *map(str, points)]
    done = forked_command.run(command, timeout=1_000)
    assert done.returncode == 0, done.stderr[-3_000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.timeout(1_200)
@pytest.mark.turns(2, part=1)
def test_kill_9_in_every_phase_of_marking(tmp_path: Path, full: bool, record_figures: Callable[..., None]) -> None:
    (counted,) = _run(tmp_path / "count")
    points = range(counted["operations"])
    if not full:
        points = sorted(Random(5).sample(points, 12))  # type: ignore[assignment]
    started = time.perf_counter()
    results = _run(tmp_path / "kills", *points)
    assert len(results) == len(points)
    lost, twice = (sum(result[name] for result in results) for name in ("lost", "twice"))
    record_figures(
        "kill -9 while marking",
        kills=len(points),
        possible=counted["operations"],
        copies=sum(result["copies"] for result in results),
        lost=lost,
        twice=twice,
        seconds=round(time.perf_counter() - started, 1),
    )
    assert (lost, twice) == (0, 0)


# ------------------------------------------------------------------------------------------ power cuts


class Disk(MemoryDisk):
    """A memory disk whose partition directories are named by numbers."""

    def open(self, path: Path | str, *, write: bool = False) -> MemoryFile:
        return MemoryFile(self, path, 0) if Path(path).name.isdigit() else super().open(path, write=write)


@dataclass(frozen=True)
class Commit:
    """A catalog after one of its commits, and how many operations of the disk came before."""

    after: int
    firm: bool
    data: bytes


@dataclass(frozen=True)
class Answer:
    """A step that was answered after so many operations and firm commits."""

    after: int
    firm_commits: int


def _recorded(home: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Disk, list[Commit], list[Answer]]:
    disk = Disk(log=[])
    commits: list[Commit] = []
    answers: list[Answer] = []
    transaction = Catalog._open_transaction

    @contextlib.contextmanager
    def noted(self: Catalog, level: Level) -> Iterator[Any]:
        with transaction(self, level) as db:
            yield db
        assert disk.log is not None
        commits.append(Commit(len(disk.log), level is Level.FULL, self._db.serialize()))

    monkeypatch.setattr(Catalog, "_open_transaction", noted)
    broker = marking.begin(home, disk)
    broker.stop()
    monkeypatch.setattr(Catalog, "_open_transaction", transaction)
    shutil.copytree(home, home.with_name("empty"), ignore=shutil.ignore_patterns(f"{FILE_NAME}*"))
    monkeypatch.setattr(Catalog, "_open_transaction", noted)
    broker = marking.opened(home, disk)
    assert disk.log is not None
    # no cut lies in what the beginning did
    commits[:] = [Commit(len(disk.log), True, broker.catalog._db.serialize())]
    for step in marking.STEPS:
        step(broker)
        answers.append(Answer(len(disk.log), sum(commit.firm for commit in commits)))
    broker.catalog.close()
    monkeypatch.setattr(Catalog, "_open_transaction", transaction)
    return disk, commits, answers


@pytest.mark.timeout(1_200)
def test_power_cuts_while_marking(
    tmp_path: Path, full: bool, record_figures: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "MESSAGES_PER_MARKING", marking.MESSAGES_PER_MARKING)
    home = tmp_path / "home"
    disk, commits, answers = _recorded(home, monkeypatch)
    assert disk.log is not None
    cuts = PowerCuts(disk.log)
    plans = [plan for plan in cuts.plans() if plan[0] >= commits[0].after]
    random = Random(9)
    chosen = sorted(random.sample(plans, min(len(plans), 1_000 if full else 30)), key=lambda plan: plan[0])
    figures = {"lost": 0, "twice": 0, "copies": 0}
    for number, (after, choice, kept, how) in enumerate(chosen):
        before = [commit for commit in commits if commit.after <= after]
        # a firm commit is there once anything was done after it; others may be lost, the last first
        least = max((at for at, commit in enumerate(before) if commit.firm and commit.after < after), default=0)
        last = random.randint(least, len(before) - 1)
        firm = sum(commit.firm for commit in before[: last + 1])
        answered = sum(answer.after <= after and answer.firm_commits <= firm for answer in answers)
        cut = tmp_path / f"cut{number}"
        shutil.copytree(home.with_name("empty"), cut)
        (cut / FILE_NAME).write_bytes(before[last].data)
        state = cuts.build(after, choice, kept, how).disk
        at_cut = Disk(
            state.contents,
            {name.replace(str(home), str(cut)): inode for name, inode in state.names_.items()},
            numbers=state.numbers,
        )
        try:
            broker = marking.opened(cut, at_cut)
            marking.require(broker, answered)
            for name, value in marking.finish(broker, answered).items():
                figures[name] += value
            broker.catalog.close()
        except Exception as error:
            raise AssertionError(f"power cut after operation {after}, {answered} answers: {how}") from error
        shutil.rmtree(cut)
    record_figures("power cuts while marking", states=len(chosen), possible=len(plans), **figures)
    assert (figures["lost"], figures["twice"]) == (0, 0)
