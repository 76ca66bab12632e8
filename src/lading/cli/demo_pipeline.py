"""The last part of the demo: a pipeline of one TOML file over good and bad flights, and redriving the repaired ones."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..model.errors import LocalError
from .demo_faults import POISONED, poison
from .output import Output, meter, print_note, print_table

if TYPE_CHECKING:
    from ..pipeline.settings import PipelineSettings
    from ..spark.session import SparkSession

FILE, REPORT = "flights.toml", "report.html"
LATER = "lading://127.0.0.1:7070"
"""Address of a later `lading serve`, in the hints after the demo."""
BATCHES = 4
"""About how many batches the pipeline publishes; it is killed during one of them."""
END_TIMEOUT_S = 30
TOML = """\
[pipeline]
max_rows = {max_rows}

[source]
from = "{url}"
topic = "{topic}"

[payload]
format = "json"

[headers]
carrier   = "string required"
tail      = "{tail}"
dep_delay = "int"
scheduled = "timestamp"
distance  = "int from payload"

[[route]]
where = "dep_delay > 60"
to    = "parquet:./tables/late"

[good]
to = "delta:./tables/flights"

[quarantine]
to = "parquet:./tables/quarantine"
"""
STRICT, MENDED = "string required", "string"
REPAIRABLE = "missing_header"
Counts = dict[str, int]


def pipeline(
    spark: SparkSession,
    url: str,
    topic: str,
    directory: Path,
    sent: int,
    adds_up: Callable[[str, int, int], None],
    stopped: Callable[[], bool],
) -> None:
    """Run the pipeline of FILE, correct its contract, redrive what had failed because of it; check every count.

    The first run is ended with kill -9 between two batches or in one, and another one continues.
    """
    file = directory / FILE
    max_rows = choose_batch_rows(sent)
    file.write_text(TOML.format(url=url, topic=topic, tail=STRICT, max_rows=max_rows))
    print_note(f"[bold]\n5  A pipeline: {file}[/]")
    print_note("".join(f"   [dim]{line}[/]\n" for line in _list_lines(file.read_text())).rstrip("\n"))
    poisoned = poison(url, topic)
    print_note(f"   {poisoned:,} flights ({POISONED}) are marked poisoned: pipelines do not read them")
    _kill_a_run(file, stopped)
    _run(spark, file, stopped)
    first = _count_tables(file)
    print_table(
        [{"table": name, "messages": count} for name, count in first.items()],
        {"table": "table", "messages": "messages"},
        output=Output.TEXT,
    )
    adds_up(f"{_sum(first)} poisoned {poisoned:,}", sum(first.values()) + poisoned, sent)
    file.write_text(TOML.format(url=url, topic=topic, tail=MENDED, max_rows=max_rows))
    _redrive_flights(spark, file, first, adds_up, stopped)
    file.write_text(TOML.format(url=LATER, topic=topic, tail=MENDED, max_rows=max_rows))


def choose_batch_rows(sent: int) -> int:
    """Return how many rows a batch has, so that the last of BATCHES has a fair share of the flights.

    With exactly a quarter in each, the rows left by rounding became a batch of their own: two bad flights of eight
    exceed ``max_failure_ratio``, and the run stopped.
    """
    return sent // BATCHES + sent // 50 + 1


def _redrive_flights(
    spark: SparkSession,
    file: Path,
    first: Counts,
    adds_up: Callable[[str, int, int], None],
    stopped: Callable[[], bool],
) -> None:
    from ..pipeline.quarantine import Quarantine
    from ..pipeline.report import report
    from ..pipeline.state import existing

    print_note("[bold]\n6  Corrected, and redriven[/]")
    _print_reasons(file)
    print_note(f'   cancelled flights have no tail number, so the contract now says [bold]tail = "{MENDED}"[/]')
    again = Quarantine(_load_settings(file)).redrive(reasons=[REPAIRABLE]).sent
    print_note(f"   lading quarantine redrive {file} --reason {REPAIRABLE}: {again:,} sent again, each once")
    _run(spark, file, stopped)
    after = _count_tables(file)
    print_table(
        [{"table": name, "before": first[name], "after": after[name]} for name in first],
        {"table": "table", "before": "before", "after": "after"},
        output=Output.TEXT,
    )
    adds_up(_sum(after).removesuffix(" +"), sum(after.values()), sum(first.values()))
    page = file.with_name(REPORT)
    settings = _load_settings(file)
    page.write_text(report(existing(settings), settings.id))
    print_note(f"   [dim]rates, delays and reasons of both runs: {page}[/]")


def _print_reasons(file: Path) -> None:
    from ..pipeline.quarantine import Quarantine

    columns = {"reason": "why in quarantine", "header": "header", "messages": "messages"}
    print_table(Quarantine(_load_settings(file)).histogram(), columns, output=Output.TEXT)


def _kill_a_run(file: Path, stopped: Callable[[], bool]) -> None:
    """Run the pipeline in a process of its own, without Spark, and kill it once it has published a batch."""
    arguments = ["pipeline", "run", str(file), "--local"]
    command = [sys.executable, "-m", "lading", *arguments, "--output", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        published = 0
        try:
            for line in process.stdout:
                published = json.loads(line).get("read", 0)
                if published:
                    break
        finally:
            process.kill()
            _, errors = process.communicate(timeout=END_TIMEOUT_S)
    if stopped():
        raise KeyboardInterrupt
    if process.returncode not in (0, -signal.SIGKILL):
        raise LocalError(f"{' '.join(['lading', *arguments])} failed: {errors.strip()}")
    print_note(f"   [bold]kill -9[/] of [bold]{' '.join(['lading', *arguments])}[/] after {published:,} messages")
    print_note("   [dim]the next run, on Spark, continues from what was published[/]")


def _count_tables(file: Path) -> Counts:
    """Return the number of messages in each table, as a reader of its form counts them."""
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

    from ..pipeline.quarantine import Quarantine

    tables = file.parent / "tables"
    flights, late = tables / "flights", tables / "late"
    return {
        "flights": DeltaTable(flights).to_pyarrow_dataset().count_rows()
        if DeltaTable.is_deltatable(str(flights))
        else 0,
        "late": ds.dataset(late, format="parquet").count_rows() if late.is_dir() else 0,
        "quarantine": sum(row["waiting"] for row in Quarantine(_load_settings(file)).histogram()),
    }


def _run(spark: SparkSession, file: Path, stopped: Callable[[], bool]) -> None:
    """Run to the end of the topic."""
    from ..pipeline.run import run

    with meter("   pipeline", None) as progress:
        done = run(
            lambda: spark,
            _load_settings(file),
            on_progress=lambda now: progress.reach(now.read, now.read + now.lag),
            stopped=stopped,
        )
    print_note(f"   [bold]{done['read']:,}[/] messages validated, routed and published in {done.seconds:.1f} s")


def _load_settings(file: Path) -> PipelineSettings:
    from ..pipeline.settings import PipelineSettings

    return PipelineSettings.load(file)


def _list_lines(text: str) -> list[str]:
    """Return the lines of the file that are not empty."""
    return [line for line in text.splitlines() if line]


def _sum(counts: Counts) -> str:
    return "".join(f"{name} {count:,} + " for name, count in counts.items()).rstrip()
