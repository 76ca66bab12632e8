"""``lading mirror``: topics copied from one system to another, with proof of what survived; many as a service."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args

import typer

from ..model.errors import LadingError, LocalError, SettingError
from .options import AsOutput, Shown, States, local_path, parse_listen_address, word
from .output import Output, format_count, format_rate, json_line, line, literal, meter, print_note, print_table

if TYPE_CHECKING:
    from ..mirror.mirrors_file import MirrorsFile, NamedMirror
    from ..mirror.run import MirrorProgress, MirrorReport
    from ..mirror.service import MirrorService
    from ..mirror.settings import MirrorSettings
    from ..model.address import Address
    from .interruption import StopSignal

OnOff = Literal["on", "off"]
OnRefused = Literal["stop", "skip"]
OnLoss = Literal["fail", "skip"]
Start = Literal["earliest", "latest"]
WAIT_S: Final = 0.1
"""Interval at which a service checks whether it should stop, and whether a mirror changed."""

app = typer.Typer(help="Copy topics between systems, once or as a service.")


@app.command()
def copy(
    source: Annotated[
        str, typer.Argument(metavar="SRC", help="Where from: kafka://, iggy://, nsq://, lading:// or a directory.")
    ],
    target: Annotated[str, typer.Argument(metavar="DST", help="Where to: kafka://, iggy://, nsq:// or lading://.")],
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="PATTERN", help="Topic or pattern such as 'air*'; repeat for several."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", metavar="PATTERN", help="Topics to leave out; repeat for several.")
    ] = None,
    rename: Annotated[
        list[str] | None, typer.Option("--rename", metavar="OLD=NEW", help="Name of a topic at the target.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow/--until-end", help="Keep running, or stop at the present end of each topic."),
    ] = False,
    carrier: Annotated[
        OnOff,
        typer.Option(
            "--carrier", parser=word(get_args(OnOff)), metavar="|".join(get_args(OnOff)),
            help="on: a reserved header carries what the target has no form for; off: that is lost, and counted.",
        ),
    ] = "on",
    report: Annotated[
        list[Path] | None,
        typer.Option(
            "--report", metavar="FILE", parser=local_path,
            help="Write the fidelity table to FILE: .html, .json, or text; repeat for several.",
        ),
    ] = None,
    states: States = "available",
    start: Annotated[
        Start,
        typer.Option(
            "--start", parser=word(get_args(Start)), metavar="|".join(get_args(Start)),
            help="Where topics begin that were not mirrored before.",
        ),
    ] = "earliest",
    on_loss: Annotated[
        OnLoss,
        typer.Option(
            "--on-loss", parser=word(get_args(OnLoss)), metavar="|".join(get_args(OnLoss)),
            help="If the source deleted messages before they were read: fail, or skip them.",
        ),
    ] = "fail",
    on_refused: Annotated[
        OnRefused,
        typer.Option(
            "--on-refused", parser=word(get_args(OnRefused)), metavar="|".join(get_args(OnRefused)),
            help="If the target cannot hold a message: stop, or skip it and count it.",
        ),
    ] = "stop",
    two_way: Annotated[
        bool,
        typer.Option("--two-way", help="Mark messages with where they come from, and leave out those of the target."),
    ] = False,
    source_name: Annotated[
        str | None, typer.Option("--source-name", help="Name of the source in marks. Default: its address.")
    ] = None,
    target_name: Annotated[
        str | None, typer.Option("--target-name", help="Name of the target in marks. Default: its address.")
    ] = None,
    channel: Annotated[
        str, typer.Option(help="NSQ channel to read, if the source is nsq://; two mirrors of one share its messages.")
    ] = "mirror",
    state: Annotated[
        Path | None,
        typer.Option(
            "--state", metavar="DIRECTORY", parser=local_path,
            help="Directory for positions and the table of offsets. Default: one for each SRC and DST, in "
            "~/.local/state/lading/mirrors.",
        ),
    ] = None,
    translate: Annotated[
        list[str] | None,
        typer.Option(
            "--translate", metavar="TOPIC:PARTITION:OFFSET",
            help="Do not mirror; print where a reader at this offset of the source goes on at the target.",
        ),
    ] = None,
    output: AsOutput = Output.TEXT,
) -> None:  # fmt: skip
    """Copy topics between systems, headers included. Rerun to continue; Ctrl-C stops after the work in hand.

    Topics are created with as many partitions as at the source. Header types that the target does not have travel by
    carrier and are restored when Lading reads them. Options of a connection follow ? in its URL. The word `copy` may be
    left out.

    Examples:

        lading mirror kafka://127.0.0.1:9092 lading://127.0.0.1:7070 --topic 'flights*' --report fidelity.html

        lading mirror lading://127.0.0.1:7070 iggy://127.0.0.1:8090 --follow --exclude '*_dead'

        lading mirror kafka://a:9092 kafka://b:9092 --translate flights:0:1234
    """
    from ..mirror.run import run_mirror
    from ..mirror.settings import MirrorSettings, parse_renames
    from .interruption import StopSignal

    settings = MirrorSettings(
        source, target, topics or (), exclude or (), parse_renames(rename or ()), carrier=carrier,
        states=_to_states(states), follow=follow, two_way=two_way, source_name=source_name, target_name=target_name,
        channel=channel, on_refused=on_refused, on_loss=on_loss, start=start, fidelity=bool(report), state=state,
    )  # fmt: skip
    if translate:
        _translate(settings, translate, output)
        return
    with StopSignal().install() as stop, meter(f"{source} to {target}", None) as progress:

        def on_progress(now: MirrorProgress) -> None:
            progress.reach(now.messages, None if follow else now.messages + now.left)
            if output is Output.JSON:
                json_line({"event": "progress", "messages": now.messages, "left": now.left})

        done = run_mirror(settings, is_stopped=lambda: stop.is_requested, on_progress=on_progress)
    for path in report or ():
        _write(path, done)
    _print(done, output)
    if stop.is_requested and not follow:
        raise typer.Exit(130)


@app.command()
def run(
    file: Annotated[Path, typer.Argument(metavar="TOML", parser=local_path, help="File of mirrors.")],
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Run this mirror of the file; may be repeated.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what each mirror would copy; create, send and keep nothing.")
    ] = False,
    address: Annotated[
        str | None,
        typer.Option(
            "--address", metavar="HOST:PORT",
            help="Where /metrics and /health are served, instead of the file's; port 0 picks a free port.",
        ),
    ] = None,
    output: AsOutput = Output.TEXT,
) -> None:  # fmt: skip
    """Run all mirrors of a file until SIGTERM or Ctrl-C; each follows its source, and one that fails is tried again.

    Examples:

        lading mirror run mirrors.toml

        lading mirror run mirrors.toml --dry-run

        lading mirror run mirrors.toml --only to-kafka --output json
    """
    from ..mirror.mirrors_file import load_mirrors

    loaded = load_mirrors(file)
    for sentence in loaded.warnings:
        print_note(sentence)
    mirrors = _select(loaded, only or ())
    if dry_run:
        _show_plans(mirrors, output)
        return
    bound = loaded.address if address is None else parse_listen_address(address, "--address")
    _serve_mirrors(mirrors, bound, output)


def _select(loaded: MirrorsFile, only: Sequence[str]) -> list[NamedMirror]:
    names = [one.name for one in loaded.mirrors]
    for name in only:
        if name not in names:
            raise SettingError(f"--only {name!r}: the file has no such mirror; there are {', '.join(names)}")
    return [one for one in loaded.mirrors if not only or one.name in only]


def _show_plans(mirrors: Sequence[NamedMirror], output: Output) -> None:
    """Show a row for each topic and for each mirror that cannot run; exit with 1 if there is such a mirror."""
    from ..mirror.plan import plan_mirror

    rows: list[dict[str, Any]] = []
    problems = 0
    for one in mirrors:
        try:
            planned = plan_mirror(one.settings, source_options=one.source_options, target_options=one.target_options)
        except LadingError as error:
            rows.append({"mirror": one.name, "problem": str(error)})
            problems += 1
        else:
            rows += [{"mirror": one.name, **topic.as_document()} for topic in planned]
    if output is Output.JSON:
        for row in rows:
            json_line(row)
    else:
        columns = {
            "mirror": "mirror", "topic": "topic", "target": "at the target", "partitions": "partitions",
            "is_created": "created", "left": "to copy",
        }  # fmt: skip
        topics = [row for row in rows if "topic" in row]
        if topics or not problems:
            print_table(topics, columns, output=output, empty="no topic is chosen yet")
        for row in rows:
            if "problem" in row:
                print_note(f"[bold]{literal(row['mirror'])}[/]: {literal(row['problem'])}")
    if problems:
        raise typer.Exit(1)


def _serve_mirrors(mirrors: Sequence[NamedMirror], address: Address, output: Output) -> None:
    from ..mirror.service import MirrorService
    from ..runtime.log_lines import logging_to_stderr
    from ..runtime.status_server import serve_status
    from ..serve.service_manager import ServiceManager
    from .interruption import StopSignal

    service = MirrorService(mirrors)
    manager = ServiceManager()
    with (
        StopSignal().install() as stop,
        logging_to_stderr("json" if output is Output.JSON else "text"),
        serve_status(address, "a Lading mirror service", service.pages) as bound,
    ):
        service.start()
        manager.tell_ready()
        names = [one.name for one in mirrors]
        if output is Output.JSON:
            json_line({"event": "ready", "address": f"http://{bound}", "mirrors": names})
        else:
            print_note(f"{format_count(len(names), 'mirror')}: {', '.join(names)}; health: http://{bound}/health")
        _wait_for_stop(service, stop, output)
        manager.tell_stopping()
        unfinished = service.stop()
    if output is Output.JSON:
        mirrors_by_name = {worker.name: worker.describe() for worker in service.workers}
        json_line({"event": "done", "mirrors": mirrors_by_name, "unfinished": unfinished})
        return
    for worker in service.workers:
        print_note(f"[bold]{worker.name}[/]: {format_count(worker.messages, 'message')}")
    if unfinished:
        print_note(f"not finished, and sent again by the next run: work of {', '.join(unfinished)}")


def _wait_for_stop(service: MirrorService, stop: StopSignal, output: Output) -> None:
    """Wait for a signal; meanwhile print a line of JSON for each mirror that changes its state."""
    phases: dict[str, str] = {}
    while not stop.is_requested:
        for worker in service.workers:
            if output is Output.JSON and phases.get(worker.name) != worker.phase:
                phases[worker.name] = worker.phase
                is_well = worker.phase in ("starting", "running")
                json_line(
                    {"event": "state", "mirror": worker.name, "state": worker.phase,
                     "error": None if is_well else worker.last_error}
                )  # fmt: skip
        time.sleep(WAIT_S)


def _to_states(states: str) -> Shown:
    return "all" if states == "all" else "available"


def _print(done: MirrorReport, output: Output) -> None:
    if output is Output.JSON:
        json_line(done.as_document())
        return
    for one in done.topics:
        left_out = [f"{one.returned:,} had come from there"] * bool(one.returned)
        left_out += [
            f"{one.refused:,} refused: {one.refusals[0]}" if one.refusals else f"{one.refused:,} refused"
        ] * bool(one.refused)
        rest = f"; left out: {', '.join(left_out)}" if left_out else ""
        print_note(
            f"[bold]{one.topic}[/]: {format_count(one.messages, 'message')}, "
            f"{format_count(one.partitions, 'partition')}, {one.delivery}{rest}"
        )
    rate = done.messages / max(done.seconds, 1e-9)
    print_note(f"{format_count(done.messages, 'message')} in {done.seconds:.1f} s, {format_rate(rate, 'message')}")
    if done.settings.counts_fidelity:
        columns = {name: name for name in ("fact", "messages", "exact", "rebuilt", "lost")}
        print_table(done.fidelity.rows(), columns, output=output)


def _write(path: Path, done: MirrorReport) -> None:
    from ..mirror.fidelity import to_html, to_json, to_text

    document = done.as_document()
    if path.suffix == ".json":
        text = to_json(document)
    elif path.suffix == ".html":
        facts = [(name, str(document[name])) for name in ("source", "target", "carrier", "messages", "seconds")]
        counts = ((one, format_count(one.messages, "message")) for one in done.topics)
        facts += [(f"topic {one.topic}", f"{count}, {one.delivery}") for one, count in counts]
        text = to_html("Mirror", facts, document["fidelity"])
    else:
        text = to_text(document["fidelity"])
    try:
        path.write_text(text)
    except OSError as error:
        raise LocalError(f"{path}: the report cannot be written: {error.strerror}; name another file") from None


def _translate(settings: MirrorSettings, places: list[str], output: Output) -> None:
    from ..mirror.state import DATABASE, MirrorState

    directory = settings.state_directory
    if not (directory / DATABASE).exists():
        raise LocalError(
            f"no mirror from {settings.source_mark} to {settings.target_mark} has run here ({directory} does not "
            "exist); name its directory with --state"
        )
    state = MirrorState(directory)
    try:
        state.require_pair(settings.source_mark, settings.target_mark)
        rows = []
        for text in places:
            topic, _, place = text.partition(":")
            partition, _, offset = place.partition(":")
            if not (topic and partition.isdecimal() and offset.isdecimal()):
                raise SettingError(f"{text!r}: write TOPIC:PARTITION:OFFSET, e.g. flights:0:1234")
            there = state.translate(topic, int(partition), int(offset))
            rows.append({"topic": topic, "partition": int(partition), "offset": int(offset), "target_offset": there})
    finally:
        state.close()
    if output is Output.JSON:
        for row in rows:
            json_line(row)
    else:
        for row in rows:
            line(f"{row['topic']}:{row['partition']}:{row['target_offset']}")
