"""Commands of ``lading`` that write, as a person runs them: the same line again after each end.

Each is a writer of the matrix, whose run is the command line in a process of its own; ``test_command_lines.py`` kills
real ones at random.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from lading.cli.main import main
from lading.mirror import run as mirror_run
from lading.mirror import source as mirror_source
from lading.spool import filler
from tests.crashes.writers import (
    AT_LEAST_ONCE,
    EVERY,
    EVERY_JUDGED,
    EXACT,
    JUDGED_ROWS,
    LETTERS,
    MARKED,
    ONCE,
    PARTITIONS,
    SOURCE,
    WRITERS,
    Place,
    Row,
    Writer,
    create_topics,
    fill_queue,
    list_pipeline_rows,
    list_spooled,
    payload_of,
    prepare_quarantine,
    rows_of,
    write_judging_pipeline,
    write_routing_pipeline,
)

Lines = list[list[str]]
"""Command lines that are run one after the other."""
OUTPUT: Final = "output"
"""File in the directory of a place, which has what commands print."""


class CommandFailed(Exception):
    """A command ended with another exit code than 0."""


def run_here(line: Sequence[str], place: Place, stdin: Path | None = None) -> None:
    """Run a command line in this process, whose output is a file from then on. Raises CommandFailed."""
    make_works_small()
    output = os.open(place.directory / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(output, number)
    os.close(output)
    with open_stdin(stdin):
        try:
            main(line)
        except SystemExit as ended:
            if ended.code:
                raise CommandFailed(f"lading {' '.join(line)}: exit code {ended.code}") from None


def make_works_small() -> None:
    """Have commands of this process send little at a time, and fork their workers, which costs no imports."""
    mirror_source.FETCH_BYTES, mirror_run.WORK_BYTES = 1, 300  # type: ignore[misc]
    filler.QUIET_S, filler.WAIT_MS = 0.02, 20  # type: ignore[misc]
    multiprocessing.get_context = lambda method=None: FORKING  # type: ignore[assignment]


FORKING: Final = multiprocessing.get_context("fork")


@contextmanager
def open_stdin(path: Path | None) -> Iterator[None]:
    """Have a file as standard input."""
    before = sys.stdin
    with Path(path or os.devnull).open() as file:
        sys.stdin = file
        try:
            yield
        finally:
            sys.stdin = before


# the command lines


def list_mirror_lines(place: Place) -> Lines:
    """Mirror the source."""
    topic = place.servers.topic(SOURCE)
    return [
        ["mirror", place.servers.source, place.url, "--topic", topic, "--rename", f"{topic}={place.topic()}",
         "--state", str(place.directory / "state")]
    ]  # fmt: skip


def list_letter_lines(place: Place) -> Lines:
    """Send dead letters of others back: those of one partition, then the others."""
    line = [
        "dead-letters", "redrive", place.servers.source, place.servers.topic(LETTERS), "--to", place.topic(),
        "--server", place.url, "--state", str(place.directory / "state"),
    ]  # fmt: skip
    return [[*line, "--where", "origin_partition = 0"], line]


def list_quarantine_lines(place: Place) -> Lines:
    """Send the quarantine of a pipeline to the target, in two commands."""
    line = ["quarantine", "redrive", str(write_judging_pipeline(place)), "--to", place.topic()]
    return [[*line, "--where", f"offset < {JUDGED_ROWS // 2}"], line]


def list_pipeline_lines(place: Place) -> Lines:
    """Run a pipeline whose good messages, route and quarantine are topics of the target."""
    return [["pipeline", "run", str(write_routing_pipeline(place)), "--local"]]


def list_send_lines(place: Place) -> Lines:
    """Send lines of JSON, a file for each partition."""
    line = ["message", "send", place.topic(), "--json", "--server", place.url]
    return [line if place.is_queue else [*line, "--partition", str(partition)] for partition in range(PARTITIONS)]


def write_lines(place: Place, partition: int) -> Path:
    """Write what ``message send --json`` reads for a partition."""
    path = place.directory / f"lines{partition}"
    rows = [row for part, row in EVERY if part == partition]
    documents: list[dict[str, Any]] = [
        {
            "key": f"k{row}",
            "payload": payload_of(partition, row).decode(),
            "headers": [{"key": "row", "kind": "int32", "value": row}],
        }
        for row in rows
    ]
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return path


def list_spool_lines(place: Place) -> Lines:
    """Take what is in the queue into a spool."""
    return [
        ["spool", place.servers.targets["nsq"], place.topic("queue"), str(place.directory / "spool"), "--once"],
    ]  # fmt: skip


def list_ingest_lines(place: Place) -> Lines:
    """Copy the source into a table."""
    return [
        ["ingest", place.servers.topic(SOURCE), str(place.directory / "table"), "--local", "--from",
         place.servers.source, "--columns", "partition, key, payload, row int", "--max-rows", "4"]
    ]  # fmt: skip


def run_lines(list_lines: Callable[[Place], Lines]) -> Callable[[Place], None]:
    """Return a run of a writer that is these command lines."""

    def run(place: Place) -> None:
        for line in list_lines(place):
            run_here(line, place)

    return run


def run_send(place: Place) -> None:
    """Send the files, each with the line that it is the input of."""
    for partition, line in enumerate(list_send_lines(place)):
        run_here(line, place, write_lines(place, partition))


def list_ingested(place: Place) -> list[Row]:
    """Return what has to be in the table."""
    return [row._replace(topic="") for row in rows_of("", place, EVERY)]


def _all_rows(place: Place) -> list[Row]:
    return rows_of(place.topic(), place, EVERY)


_OLD: Final = {"iggy": AT_LEAST_ONCE, "nsq": AT_LEAST_ONCE}
COMMANDS: Final = (
    Writer("lading mirror", run_lines(list_mirror_lines), _all_rows,
           EXACT | {"iggy": ONCE, "nsq": AT_LEAST_ONCE}, create_topics("")),
    Writer("lading dead-letters redrive", run_lines(list_letter_lines), _all_rows, EXACT | _OLD, create_topics("")),
    Writer("lading quarantine redrive", run_lines(list_quarantine_lines),
           lambda place: rows_of(place.topic(), place, EVERY_JUDGED), EXACT | _OLD, prepare_quarantine),
    Writer("lading pipeline run --local", run_lines(list_pipeline_lines), list_pipeline_rows,
           EXACT | {"iggy": ONCE, "nsq": MARKED}, create_topics("good", "late", "failed")),
    Writer("lading message send", run_send, _all_rows,
           dict.fromkeys(("lading", "kafka", "apache", "iggy", "nsq"), AT_LEAST_ONCE), create_topics(""),
           has_state=False),
    Writer("lading spool", run_lines(list_spool_lines), list_spooled, {"directory": AT_LEAST_ONCE}, fill_queue),
    Writer("lading ingest --local", run_lines(list_ingest_lines), list_ingested, {"table": ONCE}, None),
)  # fmt: skip
BY_NAME: Final = {writer.name: writer for writer in (*WRITERS, *COMMANDS)}
