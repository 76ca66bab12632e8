"""``lading group``: consumer groups of all protocols, their members and their lag."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import DEFAULT_SERVER, AsOutput, Server
from .output import Output, json_line, print_note, print_table

app = typer.Typer(help="Consumer groups of all protocols, with their lag.", no_args_is_help=True)
COLUMNS = {"protocol": "protocol", "group": "group", "state": "state", "members": "members", "lag": "lag"}
PARTITION_COLUMNS = {
    "topic": "topic", "partition": "partition", "position": "position", "end": "end", "lag": "lag",
}  # fmt: skip


@app.command("list")
def list_groups(server: Server = DEFAULT_SERVER, output: AsOutput = Output.TEXT) -> None:
    """List consumer groups of all protocols with their lag.

    Example:

        lading group list
    """
    from .connection import admin

    with admin(server) as transport:
        print_table(transport.groups(), COLUMNS, output=output)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="Group, as `lading group list` shows it; of Iggy, TOPIC/GROUP.")],
    protocol: Annotated[
        str | None, typer.Option("--protocol", "-p", help="Protocol, if groups of several protocols share the name.")
    ] = None,
    server: Server = DEFAULT_SERVER,
    output: AsOutput = Output.TEXT,
) -> None:
    """Show a group: members, and offset and lag per partition.

    Example:

        lading group show ops
    """
    from .connection import admin

    with admin(server) as transport:
        if protocol is None:
            known = [row["protocol"] for row in transport.groups() if row["group"] == name]
            protocol = known[0] if known else "kafka"
            if len(known) > 1:
                print_note(
                    f"{' and '.join(known)} have a group {name!r}; this is the one of {protocol}, see --protocol"
                )
        group = transport.group(protocol, name)
    if output is Output.JSON:
        json_line(group)
        return
    print_table(group["partitions"], PARTITION_COLUMNS, output=output, title=name)
    print_note(f"{group['protocol']} group: {group['state']}, generation {group['generation']}, lag {group['lag']}")
    for member in group["members"]:
        print_note(f"member {member}")
