"""``lading state``: message states, set by filter, offset or range, and counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from ..model.errors import LocalError
from .options import DEFAULT_SERVER, AsOutput, Server, TopicName, word
from .output import Output, format_count, json_line, meter, print_note, print_table

if TYPE_CHECKING:
    from ..client.states import Changed

app = typer.Typer(
    help="Show and set message states: available, unavailable, poisoned, marked_for_deletion.", no_args_is_help=True
)
Word = Literal["available", "unavailable", "poisoned", "marked_for_deletion"]
Partition = Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Only this partition (from 0).")]
COUNT_COLUMNS = {
    "partition": "partition", "messages": "messages", "available": "available", "unavailable": "unavailable",
    "poisoned": "poisoned", "marked_for_deletion": "marked for deletion",
}  # fmt: skip
RANGE_COLUMNS = {"partition": "partition", "first": "first", "last": "last", "messages": "messages", "state": "state"}


@app.command("set")
def set_(
    topic: TopicName,
    state: Annotated[
        Word,
        typer.Option(
            "--state",
            parser=word(get_args(Word)),
            metavar="STATE",
            help=f"What the messages are from now on: {', '.join(get_args(Word))}.",
        ),
    ],
    where: Annotated[
        str | None,
        typer.Option(
            "--where", "-w", metavar="FILTER", help="Those it holds for, e.g. \"carrier = 'UA' AND delay > 15\"."
        ),
    ] = None,
    offset: Annotated[
        list[int] | None, typer.Option("--offset", min=0, help="Offset to change. May be repeated.")
    ] = None,
    range_: Annotated[
        str | None,
        typer.Option("--range", metavar="A-B", help="Offsets A to B, inclusive; combines with --where."),
    ] = None,
    partition: Partition = None,
    reason: Annotated[
        str | None, typer.Option("--reason", help="Reason; recorded on the copies in the dead-letter topic.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count matching messages.")] = False,
    server: Server = DEFAULT_SERVER,
    output: AsOutput = Output.TEXT,
) -> None:
    """Set the state of messages. Idempotent: messages already in that state are not changed.

    Examples:

        lading state set flights --state poisoned --where "delay > 1000" --reason "no such delay"

        lading state set flights --state available --where "state = 'poisoned'" --dry-run

        lading state set flights --state unavailable --partition 0 --range 100-199
    """
    from ..client.states import set_state

    if sum((where is not None or range_ is not None, bool(offset))) != 1:
        raise LocalError("select the messages with --where FILTER, --offset N (repeatable), or --range A-B")
    first, last = _parse_range(range_) if range_ is not None else (None, None)
    with meter("looking", None) as progress:

        def on_progress(done: Changed) -> None:
            progress.reach(done.seen)

        done = set_state(
            server, topic, state,
            where=where, offsets=offset or None, first=first, end=None if last is None else last + 1,
            partition=partition, reason=reason, dry_run=dry_run, on_progress=on_progress,
        )  # fmt: skip
    if output is Output.JSON:
        json_line({"topic": topic, "state": state, **done._asdict(), "dry_run": dry_run})
        return
    if where is not None:
        from .connection import absent_headers

        for sentence in absent_headers(server, topic, where, "all", found=done.matched > 0):
            print_note(sentence)
    same = done.matched - done.changed
    was = f"; {same:,} had it already" if same else ""
    what = "would become" if dry_run else "became"
    looked = f", of {done.seen:,} looked at" if where is not None else ""
    print_note(f"[bold]{format_count(done.changed, 'message')}[/] of {topic} {what} {state}{looked}{was}")


def _parse_range(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    if not (first.isdecimal() and dash and last.isdecimal() and int(first) <= int(last)):
        raise LocalError(f"--range {text!r}: write two offsets like 100-199; both are included")
    return int(first), int(last)


@app.command("list")
def list_states(
    topic: TopicName,
    ranges: Annotated[
        bool, typer.Option("--ranges", help="Every range that is not available, not only counts.")
    ] = False,
    partition: Partition = None,
    server: Server = DEFAULT_SERVER,
    output: AsOutput = Output.TEXT,
) -> None:
    """Count messages per state; --ranges lists their offsets.

    Examples:

        lading state list flights

        lading state list flights --ranges --output json
    """
    from ..transports.interface import Marking
    from .connection import open_source

    with open_source(server) as transport:
        if not isinstance(transport, Marking):
            raise LocalError(
                f"states are listed at a broker of Lading (lading://host:port, or iggy://host:port), not at {server}"
            )
        counted = [row for row in transport.state_counts(topic) if partition in (None, row["partition"])]
        if not counted:
            raise LocalError(f"topic {topic!r} has no partition {partition}; list them with lading topic show")
        if not ranges:
            rows = [_make_row(row) for row in counted]
            print_table(
                [*rows, _sum_rows(rows)] if len(rows) > 1 and output is Output.TEXT else rows,
                COUNT_COLUMNS,
                output=output,
            )
            return
        found = [
            {
                "partition": row["partition"],
                "first": first,
                "last": end - 1,
                "messages": end - first,
                "state": state.word,
            }
            for row in counted
            for first, end, state in transport.states(topic, row["partition"])
        ]
    if found or output is Output.JSON:
        print_table(found, RANGE_COLUMNS, output=output)
    else:
        print_note(f"all messages in {topic} are available")


def _make_row(row: dict[str, Any]) -> dict[str, Any]:
    return {"partition": row["partition"], "messages": row["next_offset"] - row["first_offset"], **row["states"]}


def _sum_rows(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"partition": None} | {name: sum(row[name] for row in rows) for name in COUNT_COLUMNS if name != "partition"}
