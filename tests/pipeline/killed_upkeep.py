"""Commands of upkeep in forked processes that are killed at a step: ``python -m tests.pipeline.killed_upkeep``.

This process starts no threads, so that each fork of it is as good as a process of its own.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from lading.pipeline.replace import replace_range
from lading.pipeline.settings import PipelineSettings
from lading.tables.formats.registry import open_table
from lading.tables.upkeep.optimize import optimize_table
from tests.tables.deleting import delete_where
from tests.tables.direct import DirectExecutor

DELETED: Final = 40
"""Rows of each partition below this offset are deleted from the good table."""
TOUCHED: Final = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate", "sqlite3.connect")
"""Audit events of what changes files, or may."""


def replace(file: Path, tables: Path) -> None:
    replace_range(PipelineSettings.load(file), DirectExecutor(), "20", "100")


def delete(file: Path, tables: Path) -> None:
    delete_where(open_table(tables / "flights"), f'"offset" < {DELETED}', dry_run=False)


def optimize(file: Path, tables: Path) -> None:
    optimize_table(open_table(tables / "flights"))


COMMANDS: Final[dict[str, Callable[[Path, Path], None]]] = {
    "replace": replace, "delete": delete, "optimize": optimize,
}  # fmt: skip


def run_command(command: str, file: Path, tables: Path) -> None:
    """Run a command to its end."""
    COMMANDS[command](file, tables)


def run_until(command: str, file: Path, tables: Path, step: int | None, result: int) -> None:
    """Run a command in this process, and kill it before this step; write how many steps it took, and what it said."""
    base, steps = str(file.parent), 0

    def count() -> None:
        nonlocal steps
        if steps == step:
            os.kill(os.getpid(), signal.SIGKILL)
        steps += 1

    def on_event(event: str, arguments: tuple[Any, ...]) -> None:
        if event in TOUCHED and base in str(arguments[0]):
            count()

    sync = os.fsync

    def sync_and_count(number: int) -> None:
        count()
        sync(number)

    os.fsync = sync_and_count  # type: ignore[assignment]
    sys.addaudithook(on_event)
    said = ""
    try:
        run_command(command, file, tables)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    os.write(result, json.dumps({"steps": steps, "said": said}).encode())


def main() -> None:
    """Take commands on standard input; how each ended is a line on standard output."""
    for line in sys.stdin:
        command, file, tables, step = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            run_until(command, Path(file), Path(tables), step, writing)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            text = pipe.read()
        _, status = os.waitpid(child, 0)
        ended = json.loads(text) if text else {"steps": 0, "said": ""}
        print(json.dumps({**ended, "killed": os.WIFSIGNALED(status)}), flush=True)


if __name__ == "__main__":
    import deltalake
    import duckdb
    import pyiceberg.catalog.sql
    import pyiceberg.io.pyarrow

    import lading.tables.formats.iceberg_partitions
    import lading.transports.lading.transport

    assert all((deltalake, duckdb, pyiceberg, lading))
    main()
