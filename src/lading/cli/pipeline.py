"""``lading pipeline``: topics validated by a contract, routed by filters, written to tables, exactly once."""

from __future__ import annotations

from contextlib import closing, nullcontext
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..model.errors import SettingError
from ..model.extras import require_spark
from .interruption import Interruption
from .options import AsOutput, Resume, parse_listen_address
from .output import Output, format_count, format_size, json_line, line, meter, print_lines, print_note, print_table

if TYPE_CHECKING:
    from ..model.address import Address
    from ..pipeline.progress import PipelineProgress, RunReport
    from ..pipeline.replace import ReplaceReport
    from ..pipeline.settings import PipelineSettings


app = typer.Typer(
    name="pipeline",
    help="Validate topics and write them to tables, as configured in one TOML file.",
    no_args_is_help=True,
)
File = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline's TOML file.")]


@app.command()
def run(
    file: File,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow/--once", help="Keep running (--follow), or stop at the current end of the topic (--once)."
        ),
    ] = False,
    accept_batch: Annotated[
        bool, typer.Option("--accept-batch", help="Publish the batch that was rejected for too many failures.")
    ] = False,
    resume: Resume = False,
    starting: Annotated[
        str | None,
        typer.Option(
            "--starting",
            metavar="PLACE",
            help="Where the first run begins, instead of the file's: earliest, latest, an offset, a time like "
            "2026-01-31T12:00 (UTC), or offsets by partition. Later runs continue where the last one ended.",
        ),
    ] = None,
    ending: Annotated[
        str | None,
        typer.Option(
            "--ending",
            metavar="PLACE",
            help="Where this run ends, instead of the file's: as --starting; latest is the end of the topic as it is "
            "now. Not with --follow.",
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="HTML", help="Write an HTML report of this run.")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics", metavar="HOST:PORT", help="Serve Prometheus metrics at this address; port 0 picks a free port."
        ),
    ] = None,
    local: Annotated[
        bool,
        typer.Option("--local", help="Work in processes of this machine, without Spark and Java; not for SQL steps."),
    ] = False,
    remote: Annotated[
        str | None,
        typer.Option(
            "--remote",
            metavar="sc://HOST:PORT",
            help="Run the tasks on this Spark Connect server, whose Python has Lading; tables and the state are at the "
            "same places for both. Not for SQL steps.",
        ),
    ] = None,
    output: AsOutput = Output.TEXT,
) -> None:
    """Validate, route and write source messages to the tables. Rerun to continue.

    Examples:

        lading pipeline run flights.toml

        lading pipeline run flights.toml --ending 2026-02-01

        lading pipeline run flights.toml --follow --output json

        lading pipeline run flights.toml --follow --metrics 127.0.0.1:9464

        lading pipeline run flights.toml --remote sc://spark.example.com:15002
    """
    from ..pipeline.run import SESSION
    from ..pipeline.run import run as run_pipeline
    from ..pipeline.settings import PipelineSettings
    from ..tables.local import LocalExecutor
    from .connection import absent_contract

    settings = PipelineSettings.load(file).with_range(starting, ending)
    if remote is not None and local:
        raise SettingError("--remote and --local: both say where the work is done; give one of them")
    if remote is not None and settings.document.step:
        from ..spark.session import hide_parameters

        raise SettingError(
            f"--remote {hide_parameters(remote)}: {file} has SQL steps, which need a session with a JVM of its own; "
            "run it without --remote, or leave the steps out"
        )
    if not local and not settings.document.step:
        require_spark("add --local to work without it")
    interruption = Interruption()
    for sentence in absent_contract(settings):
        print_note(sentence)
    with (
        interruption.install(),
        interruption.spark("lading pipeline", remote=remote, **SESSION) as session,
        meter(settings.id, None, "messages") as progress,
    ):

        def on_progress(now: PipelineProgress) -> None:
            progress.reach(now.read, now.read + now.lag)
            progress.label(f"{settings.id}: {now.good + now.routed:,} good, {now.quarantined:,} quarantined")
            if output is Output.JSON:
                json_line({"event": "progress", **_round_floats(asdict(now))})

        def on_metrics(address: Address) -> None:
            if output is Output.JSON:
                json_line({"event": "metrics", "address": f"http://{address}/metrics"})
            else:
                print_note(f"metrics: http://{address}/metrics")

        with closing(LocalExecutor()) if local else nullcontext() as executor:
            done = run_pipeline(
                session, settings, follow=follow, accept_batch=accept_batch, resume=resume, on_progress=on_progress,
                metrics=None if metrics is None else parse_listen_address(metrics, "--metrics"),
                on_metrics=on_metrics,
                stopped=lambda: interruption.is_requested, executor=executor,
            )  # fmt: skip
    if output is Output.JSON:
        json_line({"event": "done", **_make_document(done)})
    else:
        _show(done)
    if report is not None:
        _write_report(settings, report, done.first_manifest)


@app.command()
def replace(
    file: File,
    starting: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="Where the range begins: a time like 2026-11-01 (UTC), an offset, or offsets by partition.",
        ),
    ],
    ending: Annotated[
        str, typer.Option("--to", metavar="PLACE", help="Where the range ends, which is not in it; now for all of it.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done without doing it.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    output: AsOutput = Output.TEXT,
) -> None:
    """Read a range of messages again, and replace its rows in the tables; shows the counts and asks first.

    The settings of now judge the messages: another contract, other routes. Each of the good, routed and quarantine
    tables changes in one commit; after a crash the next run completes it, or nothing was changed. A run next to it
    continues. Messages for topics are not sent again.

    Examples:

        lading pipeline replace flights.toml --from 2026-11-01 --to 2026-11-02 --dry-run

        lading pipeline replace flights.toml --from 2026-11-01 --to 2026-11-02 --yes
    """
    from ..pipeline.replace import replace_range
    from ..pipeline.settings import PipelineSettings
    from ..tables.local import LocalExecutor
    from .connection import confirm as confirm_question

    settings = PipelineSettings.load(file)
    with Interruption().install() as interruption, closing(LocalExecutor()) as executor:

        def confirm(report: ReplaceReport) -> None:
            if not yes:
                _show_replacement(report, "would be", Output.TEXT)
                confirm_question(f"Replace the rows of {format_count(report.read, 'message')}?", yes)

        done = replace_range(
            settings, executor, starting, ending, dry_run=dry_run, confirm=confirm,
            stopped=lambda: interruption.is_requested,
        )  # fmt: skip
    _show_replacement(done, "would be" if dry_run else "", output)


def _show_replacement(report: ReplaceReport, would: str, output: Output) -> None:
    if output is Output.JSON:
        ranges = [piece.document() for piece in report.ranges]
        tables = [{"table": name, "removed": gone, "added": new} for name, (gone, new) in report.tables.items()]
        json_line(
            {"read": report.read, "dry_run": report.dry_run, "manifest": report.manifest, "ranges": ranges,
             "tables": tables, "counts": dict(report.counts)}
        )  # fmt: skip
        return
    for piece in report.ranges:
        print_note(f"{piece.topic}, partition {piece.partition}: offsets {piece.start:,} to {piece.end - 1:,}")
    rows = [{"table": name, "removed": gone, "added": new} for name, (gone, new) in report.tables.items()]
    heads = {"table": "table", "removed": "rows before", "added": "rows after"}
    print_table(rows, heads, output=Output.TEXT)
    print_note(f"[bold]{format_count(report.read, 'message')}[/] {would}{' ' if would else ''}replaced")
    if report.topics and not would:
        print_note(f"nothing was sent again to {', '.join(report.topics)}")


@app.command("report")
def report_(
    file: File,
    to: Annotated[Path, typer.Argument(metavar="HTML", help="The page to write.")] = Path("report.html"),
) -> None:
    """Write an HTML report of all published batches: counts, rates, delays, failure reasons.

    Example:

        lading pipeline report flights.toml flights.html
    """
    from ..pipeline.settings import PipelineSettings

    _write_report(PipelineSettings.load(file), to, 1)


@app.command()
def check(file: File, output: AsOutput = Output.TEXT) -> None:
    """Validate a pipeline without running it: settings, filters, sources, tables.

    Example:

        lading pipeline check flights.toml
    """
    from ..pipeline.check import check as check_pipeline
    from ..pipeline.settings import PipelineSettings
    from .connection import absent_contract

    settings = PipelineSettings.load(file)
    with Interruption().install() as interruption, interruption.spark("lading pipeline") as session:
        found = interruption.run_interruptibly(lambda: check_pipeline(settings, session))
    for sentence in absent_contract(settings):
        print_note(sentence)
    if output is Output.JSON:
        for problem in found:
            json_line(asdict(problem))
    for problem in found if output is Output.TEXT else ():
        print_lines(f"{problem.part}: {problem.sentence}")
    if found:
        raise typer.Exit(1)
    if output is Output.JSON:
        json_line({"pipeline": settings.id, "problems": 0})
    else:
        # not the plain command, which would only report that it needs Spark
        local = "" if settings.document.step or find_spec("pyspark") else " --local"
        print_note(f"{file}: no problems found; run it with: lading pipeline run {file}{local}")


@app.command()
def package(
    to: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Where to write the archive and the script.")] = Path(
        "dist"
    ),
    python: Annotated[
        Path | None,
        typer.Option("--python", metavar="PATH", help="The Python on the nodes. Default: the path of this one's."),
    ] = None,
    output: AsOutput = Output.TEXT,
) -> None:
    """Build what spark-submit takes to run pipelines on a cluster: an archive with compiled kernels, and a script.

    Examples:

        lading pipeline package ./dist

        lading pipeline package ./dist --python /usr/bin/python3.11
    """
    from ..pipeline.package import build_package

    built = build_package(to, python)
    if output is Output.JSON:
        json_line({
            "archive": str(built.archive), "entry": str(built.entry), "packages": built.packages,
            "bytes": built.size_bytes, "command": built.command,
        })  # fmt: skip
        return
    print_note(f"{built.archive}: {format_size(built.size_bytes)}, {format_count(built.packages, 'package')}")
    print_note("run a pipeline, with the MASTER of the cluster and the FILE of the pipeline:")
    line(built.command)


def _write_report(settings: PipelineSettings, to: Path, first: int) -> None:
    from ..model.errors import LocalError
    from ..pipeline.report import report
    from ..pipeline.state import existing

    page = report(existing(settings), settings.id, first)
    try:
        to.write_text(page)
    except OSError as error:
        raise LocalError(f"cannot write the report {to}: {error.strerror}; name another file") from None
    print_note(f"report: {to}")


def _make_document(report: RunReport) -> dict[str, Any]:
    return {
        "read": report["read"],
        **({"passed": report["passed"]} if "passed" in report.counts else {}),
        "good": report["good"],
        "routed": report["routed"],
        "quarantined": report["quarantined"],
        "batches": report.batches,
        "files": report.files,
        "bytes": report.size_bytes,
        "seconds": round(report.seconds, 3),
        "rows_per_s": round(report.rows_per_s),
        "counts": dict(report.counts),
    }


def _round_floats(values: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in values.items()}


def _show(report: RunReport) -> None:
    from ..columns.instants import unreadable_times_sentence
    from ..tables.formats.partitions import long_values_sentence

    rows = [
        {
            "destination": name.removeprefix("to."),
            "messages": count,
            "table": str(report.tables.get(name.removeprefix("to."), "")) or None,
        }
        for name, count in sorted(report.counts.items())
        if name.startswith("to.")
    ]
    rows.append(
        {
            "destination": "quarantine",
            "messages": report["quarantined"],
            "table": str(report.tables["quarantine"]),
        }
    )
    # a run that found nothing new has no destinations
    if report.batches:
        print_table(rows, {"destination": "destination", "messages": "messages", "table": "table"}, output=Output.TEXT)
    became = f"{report['good']:,} good, {report['routed']:,} routed"
    if "passed" in report.counts:
        became = f"{report['passed']:,} passed (of which the steps made {became})"
    print_note(
        f"[bold]{format_count(report['read'], 'message')}[/] in {format_count(report.batches, 'batch')}, "
        f"{report.rows_per_s:,.0f} a second: "
        f"{became}, {report['quarantined']:,} quarantined"
    )
    if unreadable := report["unreadable_times"]:
        print_note(unreadable_times_sentence(unreadable, "their tables"))
    if long_values := report["long_values"]:
        print_note(long_values_sentence(long_values))
    if refused := report["copies_refused"]:
        print_note(
            f"{format_count(refused, 'quarantined message')} in the table alone: the quarantine topic takes none of "
            "that size"
        )
