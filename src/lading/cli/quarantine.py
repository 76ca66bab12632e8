"""``lading quarantine``: messages that failed in a pipeline, why, and redriving them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import AsOutput, Where
from .output import Output, json_line, literal, meter, print_first_rows, print_note, print_table

if TYPE_CHECKING:
    from ..pipeline.quarantine import Quarantine

app = typer.Typer(
    name="quarantine", help="Inspect and redrive messages that failed in a pipeline.", no_args_is_help=True
)
File = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline's TOML file.")]
Reasons = Annotated[list[str] | None, typer.Option("--reason", help="Only this reason; may be repeated.")]
COLUMNS = {"message": "message", "reason": "reason", "header": "header", "replays": "replays", "status": "status"}
HISTOGRAM = {
    "reason": "reason", "header": "header", "messages": "messages", "waiting": "waiting", "replayed": "replayed",
    "parked": "parked",
}  # fmt: skip


@app.command("list")
def list_(
    file: File,
    where: Where = None,
    reason: Reasons = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of rows.")] = 100,
    output: AsOutput = Output.TEXT,
) -> None:
    """List quarantined messages: origin, failure reason, redrive status.

    Example:

        lading quarantine list flights.toml --where "carrier = 'UA'" --reason bad_value
    """
    rows = list(_open_quarantine(file).rows(where, reason or (), limit + 1))
    print_first_rows(rows, COLUMNS, limit, output=output, remedy="get others with --limit, --where or --reason")


@app.command()
def show(
    file: File,
    message: Annotated[str, typer.Argument(metavar="TOPIC/PARTITION/OFFSET", help="As `list` shows it.")],
    output: AsOutput = Output.TEXT,
) -> None:
    """Show one quarantined message: reason, headers, payload.

    Example:

        lading quarantine show flights.toml flights/0/4711
    """
    from ..client.message_json import to_json
    from ..model.headers import Headers
    from ..model.message import Message
    from ..model.state import State
    from ..model.values import HeaderValue
    from .message import show as show_message

    for row in _open_quarantine(file).find(message):
        whole = Message(
            payload=row["payload"],
            headers=Headers([(one["key"], HeaderValue(one["kind"], one["value"])) for one in row["headers"]]),
            key=row["key"], stream=row["stream"], topic=row["topic"], partition=row["partition"],
            offset=row["offset"], timestamp_us=row["timestamp_us"], id=row["id"],
            checksum=row["checksum"], state=State(row["state"]),
        )  # fmt: skip
        facts = {name: row[name] for name in ("reason", "header", "detail", "replays")}
        if output is Output.JSON:
            json_line({**facts, "quarantined_at": row["quarantined_at"].isoformat(), "message": to_json(whole)})
        else:
            print_note(f"[bold]{facts['reason']}[/]: {facts['detail']} (sent again {facts['replays']} times before)")
            show_message(whole, output)


@app.command()
def histogram(file: File, where: Where = None, output: AsOutput = Output.TEXT) -> None:
    """Count quarantined messages by reason and redrive status.

    Example:

        lading quarantine histogram flights.toml
    """
    sentence = "no message is in quarantine" if where is None else "no message in quarantine matches --where"
    print_table(_open_quarantine(file).histogram(where), HISTOGRAM, output=output, empty=sentence)


@app.command()
def redrive(
    file: File,
    where: Where = None,
    reason: Reasons = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be sent without sending it.")] = False,
    max_replays: Annotated[
        int, typer.Option("--max-replays", min=1, help="Park messages that were already redriven this many times.")
    ] = 3,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Send at most this many.")] = None,
    to: Annotated[str | None, typer.Option("--to", help="Another topic than the one they came from.")] = None,
    output: AsOutput = Output.TEXT,
) -> None:
    """Send quarantined messages back to their topic. Each is sent once, even if the command is interrupted and rerun.

    To iggy:// and nsq:// it is at least once: what an interrupted redrive had in hand may be sent twice.

    Examples:

        lading quarantine redrive flights.toml --where "carrier = 'UA'" --dry-run

        lading quarantine redrive flights.toml --reason bad_value --max-replays 3
    """
    from ..pipeline.quarantine import AT_LEAST_ONCE

    quarantine = _open_quarantine(file)
    with meter("redrive", None) as progress:
        done = quarantine.redrive(
            where, reason or (), max_replays=max_replays, limit=limit, to=to, dry_run=dry_run,
            on_sent=progress.advance,
        )  # fmt: skip
    if output is Output.JSON:
        json_line(asdict(done))
        return
    verb = "would be sent" if dry_run else "sent"
    print_note(
        f"[bold]{done.sent:,}[/] {verb} again, {done.parked:,} parked (sent {max_replays} times before), "
        f"{done.already:,} had been sent again already"
        + (f"; {done.resumed:,} of an interrupted redrive were finished first" if done.resumed else "")
        + (f"; delivery is {done.delivery}" if done.delivery == AT_LEAST_ONCE else "")
        + (f"; {done.refused:,} were refused and wait" if done.refused else "")
    )
    for problem in done.problems:
        print_note(f"[red]{literal(problem)}[/]")


def _open_quarantine(file: Path) -> Quarantine:
    from ..pipeline.quarantine import Quarantine
    from ..pipeline.settings import PipelineSettings

    return Quarantine(PipelineSettings.load(file))
