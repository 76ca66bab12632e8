"""The last part of the demo: a pipeline of one TOML file over good and bad flights, and redriving the repaired ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .demo_faults import POISONED, poison
from .output import Output, meter, print_note, print_table

if TYPE_CHECKING:
    from ..pipeline.settings import PipelineSettings
    from ..spark.session import SparkSession

FILE, REPORT = "flights.toml", "report.html"
LATER = "lading://127.0.0.1:7070"
"""Address of `lading serve` when the demo is over."""
TOML = """\
[source]
from = "{url}"
topic = "{topic}"

[headers]
carrier   = "string required"
tail      = "{tail}"
dep_delay = "int"
scheduled = "timestamp"

[[route]]
where = "dep_delay > 60"
to    = "parquet:./tables/late"

[good]
to = "parquet:./tables/flights"

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
    """Run the pipeline of FILE, correct its contract, redrive what had failed because of it; check every count."""
    file = directory / FILE
    file.write_text(TOML.format(url=url, topic=topic, tail=STRICT))
    print_note(f"[bold]\n5  A pipeline: {file}[/]")
    print_note("".join(f"   [dim]{line}[/]\n" for line in _shown(file.read_text())).rstrip("\n"))
    poisoned = poison(url, topic)
    print_note(f"   {poisoned:,} flights ({POISONED}) are marked poisoned: pipelines do not read them")
    first = _run(spark, file, stopped)
    print_table(
        [{"table": name, "messages": count} for name, count in first.items()],
        {"table": "table", "messages": "messages"},
        output=Output.TEXT,
    )
    adds_up(f"{_sum(first)} poisoned {poisoned:,}", sum(first.values()) + poisoned, sent)
    _redrive(spark, url, topic, file, first, adds_up, stopped)
    file.write_text(TOML.format(url=LATER, topic=topic, tail=MENDED))


def _redrive(
    spark: SparkSession,
    url: str,
    topic: str,
    file: Path,
    first: Counts,
    adds_up: Callable[[str, int, int], None],
    stopped: Callable[[], bool],
) -> None:
    from ..pipeline.quarantine import Quarantine
    from ..pipeline.report import report
    from ..pipeline.state import existing

    print_note("[bold]\n6  Corrected, and redriven[/]")
    _why(file)
    file.write_text(TOML.format(url=url, topic=topic, tail=MENDED))
    print_note(f'   cancelled flights have no tail number, so the contract now says [bold]tail = "{MENDED}"[/]')
    again = Quarantine(_settings(file)).redrive(reasons=[REPAIRABLE]).sent
    print_note(f"   lading quarantine redrive {file} --reason {REPAIRABLE}: {again:,} sent again, each once")
    more = _run(spark, file, stopped)
    waiting = sum(row["waiting"] for row in Quarantine(_settings(file)).histogram())
    after = {name: first[name] + more[name] for name in first if name != "quarantine"} | {"quarantine": waiting}
    print_table(
        [{"table": name, "before": first[name], "after": after[name]} for name in first],
        {"table": "table", "before": "before", "after": "after"},
        output=Output.TEXT,
    )
    adds_up(_sum(after).removesuffix(" +"), sum(after.values()), sum(first.values()))
    page = file.with_name(REPORT)
    settings = _settings(file)
    page.write_text(report(existing(settings), settings.id))
    print_note(f"   [dim]rates, delays and reasons of both runs: {page}[/]")


def _why(file: Path) -> None:
    from ..pipeline.quarantine import Quarantine

    columns = {"reason": "why in quarantine", "header": "header", "messages": "messages"}
    print_table(Quarantine(_settings(file)).histogram(), columns, output=Output.TEXT)


def _run(spark: SparkSession, file: Path, stopped: Callable[[], bool]) -> Counts:
    """Run to the end of the topic; return the number of messages in each table."""
    from ..pipeline.run import run

    with meter("   pipeline", None) as progress:
        done = run(
            lambda: spark,
            _settings(file),
            on_progress=lambda now: progress.reach(now.read, now.read + now.lag),
            stopped=stopped,
        )
    print_note(f"   [bold]{done['read']:,}[/] messages validated, routed and published in {done.seconds:.1f} s")
    return {"flights": done["good"], "late": done["routed"], "quarantine": done["quarantined"]}


def _settings(file: Path) -> PipelineSettings:
    from ..pipeline.settings import PipelineSettings

    return PipelineSettings.load(file)


def _shown(text: str) -> list[str]:
    """Return the lines of the file that are not empty."""
    return [line for line in text.splitlines() if line]


def _sum(counts: Counts) -> str:
    return "".join(f"{name} {count:,} + " for name, count in counts.items()).rstrip()
