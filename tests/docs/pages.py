"""Runs the snippets of pages, one page after the other, in one process: all pages share one Spark session."""

from __future__ import annotations

import json
import os
import shutil
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, NamedTuple
from unittest.mock import patch

from tests import forked_command

RUN_PAGES: Final = """
import json, sys
from tests.docs.pages import Step, run_steps
for steps in json.load(sys.stdin):
    run_steps([Step(language, text, tuple(arguments)) for language, text, arguments in steps])
"""
"""A program that runs the pages on its standard input in one process."""


class Step(NamedTuple):
    """Something a page does: Python text, the arguments of ``lading``, or a file that is written first."""

    language: str
    text: str
    arguments: tuple[str, ...] = ()


def run_fresh(directory: Path, environment: dict[str, str], steps: Sequence[Step], timeout_s: float) -> str | None:
    """Run a page in a process of its own, with its commands; return its output if it failed."""
    done = forked_command.run(
        [sys.executable, "-c", RUN_PAGES],
        input=json.dumps([steps]), cwd=directory, env=os.environ | environment, timeout=timeout_s,
    )  # fmt: skip
    return None if done.returncode == 0 else f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def run_here(directory: Path, environment: dict[str, str], steps: Sequence[Step]) -> str | None:
    """Run a page in this process, so that it uses the Spark session of the pages before.

    Stopping the session does nothing: its JVM and its Python workers took ten seconds of CPU and more to get ready.

    ``directory`` is emptied first and becomes the working directory. It has to be the same for all pages: a JVM
    cannot change its own. Returns what the page said where it failed.
    """
    from pyspark.sql import SparkSession

    for left in directory.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    os.chdir(directory)
    os.environ.update(environment)
    said = directory.with_suffix(".txt")
    try:
        with said.open("w") as output, _standard_output_to(output):
            try:
                with patch.object(SparkSession, "stop", lambda session: None):
                    run_steps(steps)
            except BaseException:
                traceback.print_exc()
                return said.read_text()[-6000:]
            finally:
                _tidy_spark()
    finally:
        said.unlink()
    return None


def run_steps(steps: Sequence[Step]) -> None:
    """Do what a page does, its commands in this process; raises what fails."""
    from lading.cli.main import main

    names: dict[str, Any] = {"__name__": "__main__"}
    for step in steps:
        match step.language:
            case "python":
                exec(compile(step.text, "snippet", "exec"), names)
            case "toml":
                Path(step.arguments[0]).write_text(step.text)
            case _:
                try:
                    main(step.arguments)
                except SystemExit as left:
                    if left.code:
                        raise AssertionError(f"lading {' '.join(step.arguments)}: exit code {left.code}") from None


def _tidy_spark() -> None:
    """Let the next page find no streams and no views of this one."""
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is not None:
        for query in spark.streams.active:
            query.stop()
        for view in spark.catalog.listTables():
            spark.catalog.dropTempView(view.name)


@contextmanager
def _standard_output_to(file: IO[str]) -> Iterator[None]:
    """Let this process and those it starts write into a file."""
    kept = [os.dup(1), os.dup(2)]
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(file.fileno(), 1)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, old in enumerate(kept, 1):
            os.dup2(old, number)
            os.close(old)
