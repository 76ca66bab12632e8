"""``lading stream``: streams, Iggy's top-level namespaces."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import DEFAULT_SERVER, AsOutput, Server
from .output import Output, print_note, print_table

app = typer.Typer(help="Manage streams, Iggy's top-level namespaces.", no_args_is_help=True)
COLUMNS = {"id": "id", "name": "stream", "topics": "topics", "messages": "messages", "size": "size"}


@app.command("list")
def list_streams(server: Server = DEFAULT_SERVER, output: AsOutput = Output.TEXT) -> None:
    """List streams.

    Example:

        lading stream list --output json
    """
    from .connection import admin
    from .output import format_size

    with admin(server) as transport:
        rows = transport.streams()
    # an id is a name, not a quantity: no thousands separators
    shown = [row | {"id": str(row["id"]), "size": format_size(row["size_bytes"])} for row in rows]
    print_table(
        rows if output is Output.JSON else shown, COLUMNS, output=output,
        empty="there are no streams; create one: lading stream create NAME",
    )  # fmt: skip


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Name of the stream.")],
    stream_id: Annotated[int | None, typer.Option("--id", help="Numeric id. Default: the next free one.")] = None,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Create a stream.

    Example:

        lading stream create airlines --id 7
    """
    from .connection import admin

    with admin(server) as transport:
        transport.create_stream(name, stream_id)
    print_note(f"created stream [bold]{name}[/]")


@app.command()
def delete(
    name: Annotated[str, typer.Argument(help="Name of the stream.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Delete a stream with all its topics and messages; asks first.

    Example:

        lading stream delete airlines --yes
    """
    from .connection import admin, confirm

    confirm(f"Delete stream {name!r} with all its topics and messages?", yes)
    with admin(server) as transport:
        transport.delete_stream(name)
    print_note(f"deleted stream [bold]{name}[/]")
