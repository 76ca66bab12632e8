"""Replace, delete and optimize, killed at every step next to a running pipeline: no message is lost or doubled.

A step is what Python does to the files of tables and state: opens, renames, deletes, syncs. ``kill -9`` comes before
each of them in turn.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lading import testing
from lading.tables.formats.registry import open_table
from lading.transports.lading.transport import LadingTransport
from tests.interop import test_spark_table_packages as spark_packages
from tests.tables.engines import Engines, open_engines

from .direct import Driver
from .flights import TOML, assert_every_message_once, fate, fill, found
from .killed_upkeep import COMMANDS, DELETED, run_command

ROOT = Path(__file__).parents[2]
PARTITIONS, ROWS, FIRST = 2, 240, 120
"""Messages of each partition, and those that the tables have before the command."""
SAMPLE = 1
"""Points of each form and command on an ordinary day."""
PIECE, PIECES = map(int, os.environ.get("LADING_TEST_PIECE", "1/1").split("/"))
"""A full run takes long: with ``LADING_TEST_PIECE=2/4`` it is the second quarter of its points."""
COLUMNS = ["partition", "offset", "carrier", "delay"]


class Nursery:
    """A process that has all modules and no threads, and forks one that runs a command and is killed at a step."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.killed_upkeep"], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def begin(self, command: str, file: Path, tables: Path, step: int | None) -> None:
        assert self._process.stdin is not None
        print(json.dumps([command, str(file), str(tables), step]), file=self._process.stdin, flush=True)

    def wait(self) -> dict[str, Any]:
        """Return how the command ended: killed, the steps that it took, or what it said."""
        assert self._process.stdout is not None
        ended: dict[str, Any] = json.loads(self._process.stdout.readline())
        return ended

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture(scope="module")
def engines() -> Iterator[Engines]:
    with open_engines() as engines:
        yield engines


class Lake:
    """A pipeline whose tables have the first messages of its topic, and are as they were before each point."""

    def __init__(self, form: str, url: str, topic: str, base: Path) -> None:
        self.form, self.base, self.tables = form, base / "lake", base / "lake" / "tables"
        self._copy = base / "copy"
        self.base.mkdir()
        text = (
            TOML.format(source=url, topic=topic, server=url, max_rows=80).replace('to = "parquet:', f'to = "{form}:')
            + '\n[quarantine]\nto = "parquet:./tables/quarantine"\n'
        )
        self.file = self.base / "flights.toml"
        self.file.write_text(text.replace("[headers]", f"ending = {FIRST}\n\n[headers]"))
        Driver(self.file).run()
        self.file.write_text(text)
        shutil.copytree(self.base, self._copy)

    def reset(self) -> None:
        shutil.rmtree(self.base)
        shutil.copytree(self._copy, self.base)

    def check(self, command: str) -> None:
        """Every message is in one table once; of the rows of a delete all are there, or none."""
        if command != "delete":
            assert_every_message_once(self.tables, PARTITIONS, ROWS)
            return
        places = found(self.tables)
        gone = {place for place in deleted_places() if place not in places}
        expected = {(part, row): [fate(row)] for part in range(PARTITIONS) for row in range(ROWS)}
        assert gone in (set(), deleted_places())
        assert places == {place: kinds for place, kinds in expected.items() if place not in gone}


def read_by_engines(engines: Engines, command: str, lake: Lake) -> None:
    """Have all engines read the tables that a command changes: each has its messages, or lacks what was deleted."""
    for name in ("flights", "late") if command == "replace" else ("flights",):
        places = sorted((part, row) for part, row, *_ in engines.read(lake.form, lake.tables / name, COLUMNS))
        deleted = deleted_places() if command == "delete" else set()
        expected = [(part, row) for part in range(PARTITIONS) for row in range(ROWS) if fate(row) == name]
        assert places in (expected, [place for place in expected if place not in deleted])


def read_by_spark(form: str, table: Path) -> int:
    """Return how many rows Spark reads, each of another message; 0 for a form of which it is not asked."""
    for reader in spark_packages.READERS:
        if reader.form == form:
            _, rows = spark_packages.read(reader, reader.place(table), "offset")
            assert len({(row["partition"], row["offset"]) for row in rows}) == len(rows)
            return len(rows)
    return 0


def deleted_places() -> set[tuple[int, int]]:
    return {(part, row) for part in range(PARTITIONS) for row in range(DELETED) if fate(row) == "flights"}


@contextmanager
def make_lake(form: str, server: testing.BrokerProcess, base: Path) -> Iterator[Lake]:
    transport = LadingTransport(server.url)
    try:
        topic = f"air.upkeep_{form}_{base.parent.name[-3:]}{base.name[-3:]}".replace("-", "_")
        fill(transport, topic, PARTITIONS, ROWS)
        yield Lake(form, server.url, topic, base)
    finally:
        transport.close()


@pytest.mark.turns(3)
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("form", ["parquet", "delta", "iceberg"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_killed_at_every_step_beside_a_pipeline(
    served: testing.BrokerProcess, nursery: Nursery, engines: Engines, tmp_path: Path, form: str, command: str,
    full: bool,
) -> None:  # fmt: skip
    with make_lake(form, served, tmp_path) as lake:
        nursery.begin(command, lake.file, lake.tables, None)
        ended = nursery.wait()
        steps = ended["steps"]
        assert ended["said"] == "" and steps > 10, ended
        points = (
            range(steps)[PIECE - 1 :: PIECES]
            if full
            else sorted(random.Random(f"{form} {command}").sample(range(steps), SAMPLE))
        )
        killed = 0
        for point in points:
            lake.reset()
            nursery.begin(command, lake.file, lake.tables, point)
            if point % 2:
                # at the same time; otherwise after it
                Driver(lake.file).run()
            killed += nursery.wait()["killed"]
            Driver(lake.file).run()
            lake.check(command)
            read_by_engines(engines, command, lake)
            run_command(command, lake.file, lake.tables)
            Driver(lake.file).run()
            lake.check(command)
            staged = [path for path in lake.tables.glob("*/_lading/staged/*") if not path.name.startswith("replacing-")]
            assert not staged
            assert {file.name for file in open_table(lake.tables / "flights").list_files().files}
        print(f"{command} of {form}: {len(points)} points of {steps} steps, {killed} killed: lost 0, doubled 0")
        print(f"  equal rows after each: {', '.join(sorted(name for name in engines.seen if name.startswith(form)))}")
        assert killed >= len(points) // 2
        if full and PIECE == PIECES:
            by_spark = read_by_spark(form, lake.tables / "flights")
            assert by_spark in (0, len(engines.read(form, lake.tables / "flights", COLUMNS)))
            print(f"  rows that Spark reads after the last: {by_spark}")
