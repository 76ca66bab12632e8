"""``lading conformance``: whether a server returns headers as they were sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..model.errors import LocalError
from .options import AsOutput, local_path
from .output import Output, json_line, meter, print_note, print_table

if TYPE_CHECKING:
    from ..conformance.run import ConformanceReport


def conformance(
    url: Annotated[str, typer.Argument(metavar="URL", help="The server: kafka://host:9092, iggy://…, nsq://… or lading://….")],
    random: Annotated[
        int, typer.Option("--random", metavar="N", min=0, help="Random messages to check after the named checks.")
    ] = 1000,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Repeat a run's random messages.")] = None,
    junit: Annotated[
        Path | None,
        typer.Option("--junit", metavar="FILE", parser=local_path, help="Write the checks as JUnit's XML to FILE."),
    ] = None,
    output: AsOutput = Output.TEXT,
) -> None:  # fmt: skip
    """Check whether a server returns headers exactly as they were sent; exit 1 if one changes.

    Makes a topic of its own there, and deletes it (but on NSQ). Messages are written as the protocol's own clients
    write them, without a carrier; those that the protocol has no form for are listed, and do not count as changed.

    Examples:

        lading conformance kafka://127.0.0.1:9092

        lading conformance iggy://127.0.0.1:8090 --random 100000 --junit conformance.xml

        lading conformance nsq://127.0.0.1:4150 --output json
    """
    from ..conformance.report import to_junit
    from ..conformance.run import run_conformance
    from .interruption import StopSignal

    with StopSignal().install() as stop, meter(url, None) as progress:

        def on_progress(done: int, total: int) -> None:
            progress.reach(done, total)
            if output is Output.JSON:
                json_line({"event": "progress", "messages": done, "left": total - done})

        report = run_conformance(
            url, random_messages=random, seed=seed, is_stopped=lambda: stop.is_requested, on_progress=on_progress
        )
    if junit is not None:
        try:
            junit.write_text(to_junit(report))
        except OSError as error:
            raise LocalError(f"{junit}: cannot be written: {error.strerror}; name another file") from None
    if output is Output.JSON:
        json_line(report.as_document())
    else:
        _print(report)
    if stop.is_requested:
        raise typer.Exit(130)
    if not report.is_kept:
        raise typer.Exit(1)


def _print(report: ConformanceReport) -> None:
    from ..conformance.run import PROPERTIES, Verdict

    rows = []
    for about in PROPERTIES:
        found = [one for one in report.results if one.about == about]
        counts = {verdict.value: sum(one.verdict is verdict for one in found) for verdict in Verdict}
        rows.append({"about": about, **counts})
    print_table(rows, {"about": "about", **{verdict.value: verdict.value for verdict in Verdict}}, output=Output.TEXT)
    for one in report.results:
        if one.verdict is Verdict.CHANGED:
            print_note(f"[red]{one.name}[/]: {one.detail or 'the message changed'}")
            print_note(f"  sent      {one.sent}")
            print_note(f"  received  {one.received}" if one.received else "")
        elif one.verdict is Verdict.REFUSED:
            print_note(f"[yellow]{one.name}[/]: refused: {one.detail}")
    print_note(
        f"{report.random_messages:,} random messages (--seed {report.seed}), {report.random_changed:,} changed; "
        f"{report.seconds:.1f} s"
    )
