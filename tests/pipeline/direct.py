"""A pipeline driven without Spark: its tasks run here, one after the other, so that a crash costs no JVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lading.pipeline.breaker import check_failure_ratio
from lading.pipeline.check import Problem, check
from lading.pipeline.plan import Plan
from lading.pipeline.range_writer import write_range
from lading.pipeline.run import _read_accepted_ranges, ensure_topics, make_job, open_planners, to_table_run
from lading.pipeline.settings import PipelineSettings
from lading.pipeline.side_effects import apply_side_effects
from lading.tables import engine
from lading.tables.commit.staging import schema_words
from lading.tables.commit.state import PipelineStateDirectory, table_in_state
from lading.tables.commit.table_commit import StagedBatch, commit
from lading.tables.commit.takeover import open_state
from lading.tables.formats.manifest import Manifest
from lading.tables.micro_batches import MicroBatchPlanner, run_batches
from lading.tables.plan.ranges import OffsetRange
from lading.tables.withdrawal import RunWithdrawal

Strike = Callable[[str], None]


class Crash(BaseException):
    """The process ends here: nothing of ours may catch it and tidy up."""


def checked(file: Path) -> list[Problem]:
    """What ``lading pipeline check`` finds in a pipeline without SQL steps."""
    return check(PipelineSettings.load(file), no_session)


def no_session() -> Any:
    """These tests need no Spark."""
    raise AssertionError("a Spark session was asked for")


class Driver:
    """Runs batches of one source until there is nothing new; ``strike`` is told every phase and may crash there."""

    def __init__(self, file: Path, strike: Strike = lambda phase: None) -> None:
        self.settings = PipelineSettings.load(file)
        self.plan = Plan.of(self.settings)
        self.strike = strike
        self.manifests: list[Manifest] = []

    def run(self, *, accept_batch: bool = False, resume: bool = False) -> dict[str, int]:
        """What ``lading pipeline run --once`` does; counts of what was published."""
        settings, plan = self.settings, self.plan
        with open_planners(settings) as (planner,):
            state = open_state(
                Path(settings.state_directory), settings.id, "pipeline", plan.schemas, settings.command("--resume"),
                take_over=resume,
            )  # fmt: skip
            with state.running() as token:
                table_run = to_table_run(settings, state, plan, [planner])
                with RunWithdrawal(table_run) as withdrawal:
                    withdrawal.claim_tables()
                    bounds = ensure_topics(settings, [*planner.require_topics().values()])
                    start = engine.begin(table_run, resume=resume)
                accepted = _read_accepted_ranges(state, accept_batch=accept_batch)
                job = make_job(settings, state, token, [planner], plan, accepted, bounds)

                def publish(ranges: Sequence[OffsetRange]) -> None:
                    written = []
                    for number, piece in enumerate(ranges):
                        written.append(write_range(job, piece, f"0-{number}"))
                        self.strike("task")
                    self._commit(job, state, StagedBatch(written))
                    self.strike("published")

                sources = MicroBatchPlanner([planner], int(settings.document.pipeline.max_rows))
                run_batches(
                    sources,
                    state.checkpoint,
                    start.positions,
                    start.last,
                    publish,
                    interval_s=None,
                    pause=lambda _: None,
                )
                engine.finish_last_batch(table_run)
        counts: dict[str, int] = {}
        for manifest in self.manifests:
            for name, count in manifest.counts.items():
                counts[name] = counts.get(name, 0) + count
        return counts

    def _commit(self, job: Any, state: PipelineStateDirectory, batch: StagedBatch) -> None:
        renamed = 0

        def rename(source: Path, target: Path) -> None:
            nonlocal renamed
            self.strike("renames" if renamed else "manifest")
            source.replace(target)
            renamed += 1

        def deliver_struck(manifest: Manifest) -> None:
            self.strike("errands")
            apply_side_effects(state, manifest, job.settings)

        schemas = {table_in_state(state, path): schema_words(schema) for path, schema in job.plan.schemas.items()}
        made = commit(
            state, job.run, batch, schemas, resume_command=job.resume_command, rename=rename,
            check_batch=lambda ranges, counts: check_failure_ratio(job, state, ranges, counts), deliver=deliver_struck,
        )  # fmt: skip
        if made is not None:
            self.manifests.append(made)
