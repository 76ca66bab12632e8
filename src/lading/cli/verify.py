"""``lading verify``: whether two topics hold the same messages, headers included."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from ..model.printable import shorten_bytes
from ..verify.settings import DEFAULT_FACTS, Fact, VerifySettings
from .options import AsOutput, States, local_path
from .output import Output, format_count, format_rate, json_line, line, meter, print_note

if TYPE_CHECKING:
    from ..verify.difference import Difference
    from ..verify.run import VerifyProgress, VerifyReport

PAYLOAD_SHOWN = 120
_shorten = partial(shorten_bytes, bytes_max=PAYLOAD_SHOWN)


def verify(
    a: Annotated[
        str,
        typer.Argument(metavar="A", help="A topic: kafka://host:9092/flights, iggy:…, lading:… or DIRECTORY/topic."),
    ],
    b: Annotated[
        str,
        typer.Argument(metavar="B", help="The topic to compare with it; a server alone means the topic of that name."),
    ],
    compare: Annotated[
        str,
        typer.Option(
            "--compare", metavar="FACTS",
            help=f"What of each message is compared, of {', '.join(get_args(Fact))}. Times: in milliseconds.",
        ),
    ] = ",".join(DEFAULT_FACTS),
    ignore_header: Annotated[
        list[str] | None,
        typer.Option("--ignore-header", metavar="KEY", help="A header that may differ or lack; repeat for several."),
    ] = None,
    states: States = "available",
    wait: Annotated[
        float,
        typer.Option(
            "--wait", metavar="SECONDS", min=0,
            help="If B has fewer messages: how long it may get nothing new before they count as lacking.",
        ),
    ] = 10.0,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state", metavar="FILE", parser=local_path,
            help="Keep in FILE how far both are equal; the next run goes on there.",
        ),
    ] = None,
    output: AsOutput = Output.TEXT,
) -> None:  # fmt: skip
    """Compare two topics of any systems, headers included; exit 1 if they differ, and show the first difference.

    Messages are compared in their order, partition by partition, up to the ends that the topics have now; offsets may
    differ. Headers that travel in a carrier are compared as Lading reads them. B may be the target of a
    mirror that runs.

    Examples:

        lading verify kafka://127.0.0.1:9092/flights lading://127.0.0.1:7070

        lading verify kafka://a:9092/flights kafka://b:9092/flights --compare headers,key,payload,timestamp

        lading verify ./data/flights iggy://127.0.0.1:8090/flights --state ./flights.verify --output json
    """
    from ..verify.run import run_verification
    from .interruption import StopSignal

    settings = VerifySettings(
        a, b, _parse_facts(compare), tuple(ignore_header or ()), states, round(wait * 1000), state=state
    )
    with StopSignal().install() as stop, meter(f"{a} and {b}", None) as progress:

        def on_progress(now: VerifyProgress) -> None:
            progress.reach(now.messages, now.messages + now.left)
            if output is Output.JSON:
                json_line({"event": "progress", "messages": now.messages, "left": now.left})

        report = run_verification(settings, is_stopped=lambda: stop.is_requested, on_progress=on_progress)
    if output is Output.JSON:
        json_line(report.as_document())
    else:
        _print(report)
    if report.is_stopped:
        raise typer.Exit(130)
    if not report.is_equal:
        raise typer.Exit(1)


def _parse_facts(text: str) -> tuple[Fact, ...]:
    from ..columns.contract import did_you_mean

    known: tuple[Fact, ...] = get_args(Fact)
    words = [word.strip() for word in text.split(",") if word.strip()]
    if unknown := next((word for word in words if word not in known), None):
        raise typer.BadParameter(
            f"{unknown!r} is unknown{did_you_mean(unknown, known)}; there are {', '.join(known)}",
            param_hint="--compare",
        )
    return tuple(fact for fact in known if fact in words)


def _print(report: VerifyReport) -> None:
    different = {found.partition for found in report.differences}
    for number, one in sorted(report.partitions.items()):
        digest = f", digest {one.digest.hex()[:16]}" if number not in different else ""
        line(f"partition {number}: {format_count(one.messages, 'message')} equal{digest}")
    for found in report.differences:
        _print_difference(found)
    new = report.messages - report.resumed_messages
    before = f", {report.resumed_messages:,} of them in an earlier run" if report.resumed_messages else ""
    verdict = (
        "[yellow]stopped[/]" if report.is_stopped else "[green]equal[/]" if report.is_equal else "[red]different[/]"
    )
    print_note(
        f"{verdict}: {format_count(report.messages, 'message')} compared{before}; {report.seconds:.1f} s, "
        f"{format_rate(new / max(report.seconds, 1e-9), 'message')}"
    )


def _print_difference(found: Difference) -> None:
    facts = f" ({', '.join(found.facts)})" if found.facts else ""
    line(f"partition {found.partition}, message {found.number:,}: {found.meaning}{facts}")
    for name, message in (("a", found.a), ("b", found.b)):
        if message is None:
            line(f"  {name}: no message")
            continue
        line(f"  {name}: offset {message.offset}, key {_shorten(message.key)}, payload {_shorten(message.payload)}")
        for header in message.headers:
            line(f"     {header}")
