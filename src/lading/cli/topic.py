"""``lading topic``: topics, their partitions, and the names they have elsewhere."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import DEFAULT_SERVER, AsOutput, From, Server
from .output import Output, document, note, table

app = typer.Typer(help="Topics and their partitions.", no_args_is_help=True)
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


@app.command("list")
def list_topics(from_: From = DEFAULT_SERVER, output: AsOutput = Output.TEXT) -> None:
    """All topics of a broker or of a data directory.

    Examples:

        lading topic list

        lading topic list --from ./data
    """
    from .connection import opened, topic_row

    with opened(from_) as transport:
        table([topic_row(meta) for meta in transport.topics()], TOPIC_COLUMNS, output=output)


@app.command()
def show(name: str, from_: From = DEFAULT_SERVER, output: AsOutput = Output.TEXT) -> None:
    """One topic, its partitions, and how each protocol names it.

    Example:

        lading topic show flights
    """
    from .connection import opened, partition_row, topic_row

    with opened(from_) as transport:
        meta = transport.topic(name)
    rows = [partition_row(partition) for partition in meta.partitions]
    if output is Output.JSON:
        document(topic_row(meta) | {"partitions": rows})
        return
    table(rows, PARTITION_COLUMNS, output=output, title=f"{meta.name}")
    note(f"Iggy: stream {meta.stream!r}, topic {meta.topic!r} · everywhere else: {meta.name!r}")


@app.command()
def create(
    name: str,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, max=100_000, help="How many.")] = 1,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Make a topic; ``stream.topic`` makes it in that stream, a plain name in ``default``.

    Example:

        lading topic create airlines.flights --partitions 4
    """
    from .connection import opened

    with opened(server) as transport:
        meta = transport.create_topic(name, partitions)
    note(f"topic [bold]{meta.name}[/] is there, {len(meta.partitions)} partition(s)")


@app.command()
def delete(
    name: str,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Delete a topic with all its messages; asks first.

    Example:

        lading topic delete flights --yes
    """
    from .connection import admin, confirm

    confirm(f"Delete topic {name!r} with all its messages?", yes)
    with admin(server) as transport:
        transport.delete_topic(name)
    note(f"topic [bold]{name}[/] is gone")
