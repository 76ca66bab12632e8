"""``lading dead-letters``: what other systems put aside, as typed columns, and sending it back."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import SOURCE_HELP, AsOutput, SourceOption, split_source
from .output import Output, json_line, literal, meter, print_first_rows, print_note

if TYPE_CHECKING:
    from ..pipeline.dead_letter_redrive import ForeignDeadLetters

app = typer.Typer(
    name="dead-letters",
    help="List and redrive dead letters of Kafka Connect, Kafka Streams, Spring, Quarkus and others.",
    no_args_is_help=True,
)
SourceAndTopic = Annotated[
    list[str],
    typer.Argument(
        metavar="[SRC] TOPIC",
        help="Where the dead letters are, a URL or a data directory, and their topic; the topic alone with --from.",
    ),
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where", "-w", metavar="FILTER",
        help="Only these, e.g. \"origin_topic = 'orders' AND exception LIKE '%Timeout%'\".",
    ),
]  # fmt: skip
COLUMNS = {
    "message": "message", "convention": "by", "origin_topic": "topic", "origin_partition": "partition",
    "origin_offset": "offset", "exception": "exception", "reason": "reason",
}  # fmt: skip


@app.command("list")
def list_(
    words: SourceAndTopic,
    from_: SourceOption = None,
    where: Where = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of rows.")] = 100,
    output: AsOutput = Output.TEXT,
) -> None:
    """List dead letters: the topic, partition and offset of each, and why it failed.

    Examples:

        lading dead-letters list orders-dlq --from kafka://127.0.0.1:9092

        lading dead-letters list kafka://127.0.0.1:9092 orders-dlq --where "origin_topic = 'orders'"
    """
    from ..pipeline.dead_letters import describe_conventions

    source, topic = split_source(words, from_, ("TOPIC",))
    rows = list(_dead_letters(source, topic, None).rows(where, limit + 1))
    if not rows:
        selected = "" if where is None else " that --where selects"
        print_note(f"no dead letters{selected} in {topic}; looked for messages with headers {describe_conventions()}")
        return
    print_first_rows(rows, COLUMNS, limit, output=output, remedy="get others with --limit or --where")


@app.command()
def redrive(
    words: SourceAndTopic,
    # not --server, which would be the target of the letters
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            "-f",
            metavar="URL|DIR",
            help=SOURCE_HELP,
        ),
    ] = None,
    where: Where = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be sent without sending it.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Send at most this many.")] = None,
    max_replays: Annotated[
        int, typer.Option("--max-replays", min=0, help="Leave what was sent again this often; 0 counts nothing.")
    ] = 3,
    to: Annotated[str | None, typer.Option("--to", help="Another topic than the one they came from.")] = None,
    server: Annotated[str | None, typer.Option("--server", "-s", metavar="URL", help="Another server.")] = None,
    state: Annotated[
        Path | None, typer.Option("--state", metavar="DIR", help="Where to remember. Default: ./redrive-TOPIC.")
    ] = None,
    output: AsOutput = Output.TEXT,
) -> None:
    """Restore dead letters and send them to their origin. Each is sent once, even if this is interrupted and rerun.

    To iggy:// and nsq:// it is at least once: what an interrupted redrive had in hand may be sent twice.

    Examples:

        lading dead-letters redrive kafka://127.0.0.1:9092 orders-dlq --where "exception LIKE '%Timeout%'" --dry-run

        lading dead-letters redrive kafka://127.0.0.1:9092 orders-dlq --limit 1000
    """
    from ..pipeline.quarantine import AT_LEAST_ONCE

    source, topic = split_source(words, from_, ("TOPIC",))
    with meter("redrive", limit) as progress:
        done = _dead_letters(source, topic, state).redrive(
            where, limit=limit, max_replays=max_replays, to=to, server=server, dry_run=dry_run,
            on_sent=progress.advance,
        )  # fmt: skip
    if output is Output.JSON:
        json_line(asdict(done))
        return
    verb = "would be sent" if dry_run else "sent"
    facts = [f"[bold]{done.sent:,}[/] {verb} to their origin", f"{done.already:,} had been sent already"]
    facts += [f"{done.parked:,} parked (sent {max_replays} times before)"] if done.parked else []
    facts += [f"{done.strangers:,} are not dead letters of a known system"] if done.strangers else []
    facts += [f"{done.gone:,} have no payload, and their original is deleted"] if done.gone else []
    facts += [f"{done.resumed:,} of an interrupted redrive were finished first"] if done.resumed else []
    facts += [f"delivery is {done.delivery}"] if done.delivery == AT_LEAST_ONCE else []
    facts += [f"{done.refused:,} were refused and are left where they are"] if done.refused else []
    print_note(", ".join(facts))
    for problem in done.problems:
        print_note(f"[red]{literal(problem)}[/]")


def _dead_letters(source: str, topic: str, state: Path | None) -> ForeignDeadLetters:
    from ..pipeline.dead_letter_redrive import ForeignDeadLetters

    return ForeignDeadLetters(source, topic, state or Path(f"redrive-{topic}"))
