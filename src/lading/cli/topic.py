"""``lading topic``: topics, their partitions and settings, and their names in each protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from .options import DEFAULT_SERVER, AsOutput, From, Server, TopicName
from .output import Output, format_count, format_size, json_line, print_note, print_table

app = typer.Typer(help="Manage topics and their partitions.", no_args_is_help=True)
TOPIC_COLUMNS = {
    "name": "topic",
    "stream": "stream",
    "partitions": "partitions",
    "messages": "messages",
    "size": "size",
}
PARTITION_COLUMNS = {
    "partition": "partition", "first_offset": "first", "end_offset": "end", "messages": "messages", "epoch": "epoch",
}  # fmt: skip
GOING_COLUMNS = {
    "partition": "partition", "first": "first", "last": "last", "messages": "messages", "size": "size",
    "due": "due", "why": "why", "marked": "marked", "held": "held",
}  # fmt: skip
SettingWords = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A setting, such as dead_letter_topic=dead or retention_age_us=7d."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
USUAL_DURATION_US_MIN = 1_000_000
"""Shorter retention times are asked about: they hide messages before anybody can read them."""


@app.command("list")
def list_topics(from_: From = DEFAULT_SERVER, output: AsOutput = Output.TEXT) -> None:
    """List the topics of a broker or of a data directory.

    A Kafka broker reports offsets and no sizes: what it counts as messages includes deleted ones and the markers of
    transactions.

    Examples:

        lading topic list

        lading topic list --from ./data
    """
    from .connection import open_source, topic_row

    with open_source(from_) as transport:
        rows = [topic_row(meta) for meta in transport.topics()]
    print_table(
        rows if output is Output.JSON else [row | {"size": _format_known_size(row["size_bytes"])} for row in rows],
        TOPIC_COLUMNS,
        output=output,
        empty="there are no topics; create one: lading topic create NAME",
    )
    _note_queue(from_, output)


def _format_known_size(size_bytes: int | None) -> str:
    return "-" if size_bytes is None else format_size(size_bytes)


@app.command()
def show(name: TopicName, from_: From = DEFAULT_SERVER, output: AsOutput = Output.TEXT) -> None:
    """Show a topic: partitions, its name in each protocol, and protocols that cannot access it.

    Example:

        lading topic show flights
    """
    from .connection import open_source, partition_row, topic_row

    with open_source(from_) as transport:
        meta = transport.topic(name)
    rows = [partition_row(partition) for partition in meta.partitions]
    if output is Output.JSON:
        from ..dialects.protocols import explain_invisible

        unseen = explain_invisible(meta.name, len(rows))
        json_line(topic_row(meta) | {"partitions": rows, "settings": meta.settings, "hidden": unseen})
        return
    is_compacted = any("dirty_share" in row for row in rows)
    columns = PARTITION_COLUMNS | ({"dirty_share": "dirty share"} if is_compacted else {})
    print_table(rows, columns, output=output, title=f"{meta.name}")
    if meta.settings:
        print_note(f"settings: {_format_settings(meta.settings)}")
    _note_queue(from_, output)
    print_note(f"Iggy: stream {meta.stream!r}, topic {meta.topic!r} · everywhere else: {meta.name!r}")
    _print_invisible(meta.name, len(rows))


def print_invisible(server: str, name: str, partitions: int) -> None:
    """Print for a new topic which protocols cannot access it; servers other than Lading's have no other protocols."""
    if server.partition("://")[0].lower() == "lading":
        _print_invisible(name, partitions)


def _print_invisible(name: str, partitions: int) -> None:
    from ..dialects.protocols import explain_invisible

    for protocol, why in explain_invisible(name, partitions).items():
        print_note(f"not accessible to {protocol} clients: {why}")


def _note_queue(from_: str, output: Output) -> None:
    from ..transports.open import is_queue

    if is_queue(from_) and output is Output.TEXT:
        print_note("a queue reports neither partitions nor messages; /stats of its nsqd does")


@app.command()
def create(
    name: TopicName,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=1, max=100_000, help="Number of partitions.")
    ] = 1,
    settings: SettingWords = None,
    cleanup_policy: Annotated[
        str | None,
        typer.Option(
            "--cleanup-policy",
            metavar="POLICY",
            help="compact keeps the last message of each key; compact,delete applies retention too.",
        ),
    ] = None,
    yes: Yes = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Create a topic. ``stream.topic`` creates it in that stream, a plain name in ``default``.

    Examples:

        lading topic create airlines.flights --partitions 4

        lading topic create flights --set dead_letter_topic=flights-dead --set retention_age_us=7d

        lading topic create fares --cleanup-policy compact
    """
    from ..client.units import topic_settings
    from .connection import admin, open_source

    if settings or cleanup_policy:
        policy = [] if cleanup_policy is None else [f"cleanup_policy={cleanup_policy}"]
        values = topic_settings([*(settings or []), *policy])
        _confirm_short_durations(name, values, yes)
        with admin(server) as lading:
            meta = lading.create_topic(name, partitions, values)
    else:
        with open_source(server) as transport:
            meta = transport.create_topic(name, partitions)
    print_note(f"created topic [bold]{meta.name}[/] with {format_count(len(meta.partitions), 'partition')}")
    print_invisible(server, meta.name, len(meta.partitions))


@app.command()
def delete(
    name: TopicName,
    yes: Yes = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Delete a topic and all its messages, after confirmation.

    Example:

        lading topic delete flights --yes
    """
    from .connection import admin, confirm

    confirm(f"Delete topic {name!r} with all its messages?", yes)
    with admin(server) as transport:
        transport.delete_topic(name)
    print_note(f"deleted topic [bold]{name}[/]")


@app.command()
def empty(
    name: TopicName,
    yes: Yes = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Delete all messages of a topic and keep the topic, after confirmation.

    Groups and channels of all protocols continue with messages sent later. Delayed messages, and those of open
    transactions, stay.

    Example:

        lading topic empty flights --yes
    """
    from .connection import admin, confirm

    confirm(f"Delete all messages of topic {name!r}?", yes)
    with admin(server) as transport:
        deleted = transport.empty_topic(name)
    print_note(f"emptied topic [bold]{name}[/]: {format_count(deleted, 'message')}")


@app.command("set")
def set_(
    name: TopicName,
    settings: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE...", help="KEY=VALUE; KEY= resets to the default.")
    ],
    yes: Yes = False,
    server: Server = DEFAULT_SERVER,
    output: AsOutput = Output.TEXT,
) -> None:
    """Change topic settings: retention, dead-letter topic, visibility to Iggy clients.

    Examples:

        lading topic set flights dead_letter_topic=flights-dead

        lading topic set flights retention_age_us=7d retention_bytes=10GB hide_states=true

        lading topic set flights dead_letter_topic=
    """
    from ..client.units import topic_settings
    from .connection import admin

    values = topic_settings(settings)
    _confirm_short_durations(name, values, yes)
    with admin(server) as transport:
        meta = transport.alter_topic(name, values)
    if output is Output.JSON:
        json_line(meta.settings)
        return
    print_note(f"settings of [bold]{meta.name}[/]: {_format_settings(meta.settings) or 'none'}")


@app.command()
def columns(
    name: TopicName,
    words: Annotated[
        str | None,
        typer.Argument(metavar="COLUMNS", help="Typed columns, as in 'carrier string, delay int'; '' takes them away."),
    ] = None,
    server: Server = DEFAULT_SERVER,
    output: AsOutput = Output.TEXT,
) -> None:
    """Show or set the typed columns of a topic's live table, which `lading serve --tables` serves.

    Examples:

        lading topic columns flights "carrier string, delay int"

        lading topic columns flights

        lading topic columns flights ""
    """
    from .connection import admin

    with admin(server) as transport:
        meta = transport.topic(name) if words is None else transport.alter_topic(name, {"columns": words or None})
    held = meta.settings.get("columns")
    if output is Output.JSON:
        json_line({"topic": meta.name, "columns": held})
        return
    print_note(f"columns of [bold]{meta.name}[/]: {held or 'none'}")


@app.command()
def retention(
    name: TopicName,
    within: Annotated[str, typer.Option("--within", metavar="DURATION", help="Time horizon.")] = "1h",
    server: Server = DEFAULT_SERVER,
    output: AsOutput = Output.TEXT,
) -> None:
    """Show which messages retention will delete, when and why. Messages close to deletion are in state
    marked_for_deletion.

    Examples:

        lading topic retention flights

        lading topic retention flights --within 7d --output json
    """
    from ..client.units import duration_us, format_duration
    from .connection import admin

    with admin(server) as transport:
        found = transport.retention(name, max(duration_us(within) // 1_000, 0))
    if output is Output.JSON:
        json_line(found)
        return
    if found["age_us"] is None and found["size_bytes"] is None:
        print_note(f"{name} keeps everything: neither retention_age_us nor retention_bytes is set")
        return
    rows = [
        _describe_expiring(part["partition"], one, found["now_us"])
        for part in found["partitions"]
        for one in part["going"]
    ]
    if rows:
        print_table(rows, GOING_COLUMNS, output=output)
    else:
        print_note(f"nothing of {name} is due within {within}")
    rule = [
        f"older than {format_duration(found['age_us'])}" if found["age_us"] is not None else "",
        f"beyond {found['size_bytes']:,} bytes a partition" if found["size_bytes"] is not None else "",
    ]
    print_note(
        f"messages go when they are {' or '.join(filter(None, rule))}, a segment at a time; they are marked "
        f"{format_duration(found['mark_us'])} before, and this is looked at every {format_duration(found['check_us'])}"
    )


def _describe_expiring(partition: int, one: dict[str, Any], now_us: int) -> dict[str, Any]:
    from ..client.units import format_duration
    from ..model.message import format_time

    left_us = one["due_us"] - now_us
    return {
        "partition": partition,
        "first": one["first"],
        "last": one["end"] - 1,
        "messages": one["end"] - one["first"],
        "size": format_size(one["size_bytes"]),
        "due": "now" if left_us <= 0 else f"{format_time(one['due_us'], 'seconds')} (in {format_duration(left_us)})",
        "why": one["why"],
        "marked": one["marked"],
        "held": one["held"],
    }


def _confirm_short_durations(name: str, settings: Mapping[str, Any], yes: bool) -> None:
    from ..client.units import format_duration
    from .connection import confirm

    for key, value in settings.items():
        if key.endswith("_us") and value is not None and value < USUAL_DURATION_US_MIN:
            confirm(f"Set {key} of {name!r} to {format_duration(value)}, less than a second?", yes)


def _format_settings(settings: Mapping[str, Any]) -> str:
    from ..client.units import format_duration

    def value_text(key: str, value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        return format_duration(value) if key.endswith(("_us", "_us_min", "_us_max")) else str(value)

    return ", ".join(f"{key} = {value_text(key, value)}" for key, value in settings.items())
