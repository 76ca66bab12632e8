"""``lading group``: consumer groups and channels of all protocols: members and lag, new positions, deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import DEFAULT_SERVER, AsOutput, Server
from .output import Output, format_count, json_line, print_note, print_table

if TYPE_CHECKING:
    from ..transports.group_administration import GroupAdministration

app = typer.Typer(
    help="Show, reset and delete consumer groups of all protocols and NSQ channels.", no_args_is_help=True
)
COLUMNS = {"protocol": "protocol", "group": "group", "state": "state", "members": "members", "lag": "lag"}
PARTITION_COLUMNS = {
    "topic": "topic", "partition": "partition", "position": "position", "end": "end", "lag": "lag",
}  # fmt: skip


PREVIEW_COLUMNS = {
    "topic": "topic", "partition": "partition", "first": "first", "end": "end", "messages": "messages",
    "selected": "selected",
}  # fmt: skip
PLANNED_COLUMNS = {"topic": "topic", "partition": "partition", "position": "position", "new_position": "new position"}
GroupName = Annotated[str, typer.Argument(help="Group, as `lading group list` shows it; of Iggy and NSQ, TOPIC/GROUP.")]
ProtocolName = Annotated[
    str | None, typer.Option("--protocol", "-p", help="Protocol, if groups of several protocols share the name.")
]


@app.command("list")
def list_groups(server: Server = DEFAULT_SERVER, output: AsOutput = Output.TEXT) -> None:
    """List consumer groups of all protocols, and NSQ channels, with their lag.

    Examples:

        lading group list

        lading group list --server kafka://localhost:9092
    """
    from .connection import group_administration

    with group_administration(server) as transport:
        print_table(
            transport.groups(), COLUMNS, output=output,
            empty="there are no groups; one begins with its first reader: lading message poll TOPIC --group NAME",
        )  # fmt: skip


@app.command()
def show(
    name: GroupName,
    protocol: ProtocolName = None,
    server: Server = DEFAULT_SERVER,
    output: AsOutput = Output.TEXT,
) -> None:
    """Show a group: members, and offset and lag per partition.

    Example:

        lading group show ops
    """
    from .connection import group_administration

    with group_administration(server) as transport:
        group = _find(transport, name, protocol)
    if output is Output.JSON:
        json_line(group)
        return
    print_table(group["partitions"], PARTITION_COLUMNS, output=output, title=name)
    # Kafka clusters do not report the filter
    generation = f", generation {group['generation']}" if "generation" in group else ""
    print_note(f"{group['protocol']} group: {group['state']}{generation}, lag {group['lag']}")
    for member in group["members"]:
        print_note(f"member {member}")
    if "filter" in group:
        print_filter(group["protocol"], name, group["filter"])


@app.command()
def reset(
    name: GroupName,
    to: Annotated[
        str | None,
        typer.Option("--to", help="earliest, latest, an offset, -N for the last N of each partition, or a time."),
    ] = None,
    shift: Annotated[
        int, typer.Option("--shift", help="Move each position by so many messages; negative goes back.")
    ] = 0,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", help="Only this topic, with all its partitions. May be repeated."),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", min=0, help="Only this partition (from 0). May be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change; change nothing.")] = False,
    protocol: ProtocolName = None,
    server: Server = DEFAULT_SERVER,
    output: AsOutput = Output.TEXT,
) -> None:
    """Have a group read again, or skip, messages; it must have no members.

    Without --topic it is all partitions in which the group has a position.

    Examples:

        lading group reset shop --to earliest --dry-run

        lading group reset shop --to 2026-01-31T12:00 --topic orders

        lading group reset orders/audit --shift -100 --partition 0
    """
    from ..client.group_reset import plan_group_reset
    from ..client.units import parse_bound
    from ..model.errors import LocalError
    from .connection import group_administration

    if (to is None) == (shift == 0):
        raise LocalError("say where the group goes on: either --to earliest, latest, OFFSET or TIME, or --shift N")
    bound = None if to is None else parse_bound("--to", to)
    with group_administration(server) as transport:
        group = _find(transport, name, protocol, must_be_one=True)
        planned = plan_group_reset(transport, group, bound, shift=shift, topics=topic or (), partitions=partition or ())
        if not dry_run:
            positions = [(one.topic, one.partition, one.new_position) for one in planned]
            transport.reset_group(group["protocol"], name, positions)
    print_table([one._asdict() for one in planned], PLANNED_COLUMNS, output=output, title=name)
    done = "would be reset" if dry_run else "reset"
    print_note(f"{format_count(len(planned), 'partition')} of {group['protocol']} group {name} {done}")
    if dry_run and group["members"]:
        print_note(f"the group has {format_count(len(group['members']), 'member')}; stop them before it is reset")


@app.command("filter")
def filter_group(
    name: GroupName,
    where: Annotated[
        str | None, typer.Option("--where", "-w", help="Condition on headers and fields of the messages.")
    ] = None,
    client_id: Annotated[
        list[str] | None,
        typer.Option("--client-id", help="A client.id of the Kafka group's members, besides NAME. May be repeated."),
    ] = None,
    preview: Annotated[bool, typer.Option("--preview", help="Count what it would select; change nothing.")] = False,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", help="Preview: a topic that the group is to read. May be repeated."),
    ] = None,
    messages: Annotated[
        int, typer.Option("--messages", min=1, max=10_000, help="Preview: messages of each partition.")
    ] = 1_000,
    remove: Annotated[bool, typer.Option("--remove", help="Have members get all messages again.")] = False,
    protocol: ProtocolName = None,
    server: Server = DEFAULT_SERVER,
    output: AsOutput = Output.TEXT,
) -> None:
    """Have members of a group get only messages that meet a condition; without --where explain the group's filter.

    Members are unmodified clients. Those of a Kafka group set client.id to the group's name, or to one of --client-id.

    Examples:

        lading group filter shop --where "tenant = 'a'" --preview --topic orders

        lading group filter shop --where "tenant = 'a'"

        lading group filter orders/audit --where "amount > 100"

        lading group filter shop --remove
    """
    from ..model.errors import LocalError
    from .connection import admin

    if remove and where is not None:
        raise LocalError("--remove and --where exclude each other; leave one of them out")
    if preview and where is None:
        raise LocalError("--preview counts what a condition selects; give it as --where")
    with admin(server) as transport:
        protocol = protocol or _find_protocol(transport, name, must_be_one=True)
        if remove:
            transport.remove_group_filter(protocol, name)
            print_note(f"{protocol} group {name}: filter removed, members get all messages")
            return
        if where is not None and preview:
            rows = transport.preview_group_filter(protocol, name, where, topic or (), messages)
            print_table(
                rows, PREVIEW_COLUMNS, output=output, title=name,
                empty="the group has read nothing yet; name what it is to read with --topic",
            )  # fmt: skip
            looked_at, selected = (sum(row[column] for row in rows) for column in ("messages", "selected"))
            print_note(f"{selected} of {format_count(looked_at, 'message')} selected; nothing was changed")
            return
        if where is not None:
            found = transport.set_group_filter(protocol, name, where, client_id or ())
        elif (stored := transport.find_group_filter(protocol, name)) is not None:
            found = stored
        else:
            raise LocalError(f"{protocol} group {name!r} has no filter; set one with --where")
    if output is Output.JSON:
        json_line(found)
        return
    print_filter(protocol, name, found)


def print_filter(protocol: str, name: str, found: dict[str, Any]) -> None:
    """Print a group's filter, the parts of a message that it reads, and the members to which it applies."""
    print_note(f"filter of {protocol} group {name}: {found['where']}")
    read = [*(f"header {key!r}" for key in found["headers"]), *(f"field {key!r}" for key in found["fields"])]
    print_note(f"it reads {', '.join(read) or 'nothing'} of a message")
    if protocol != "kafka":
        return
    ids = ", ".join(repr(one) for one in [name, f"consumer-{name}-N", *found["client_ids"]])
    print_note(f"it is for members with client.id {ids}, and for all members of a share group")
    if found["suspended_by"] is not None:
        print_note(
            f"suspended: a member of group {found['suspended_by']!r} has such a client.id; "
            "change that, then set the filter again"
        )
    for member in found["unfiltered_members"]:
        print_note(f"member {member} gets all messages: its client.id is none of these")


@app.command()
def delete(
    name: GroupName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    protocol: ProtocolName = None,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Delete a group with its positions; asks first, and it must have no members.

    Example:

        lading group delete shop
    """
    from .connection import confirm, group_administration

    with group_administration(server) as transport:
        group = _find(transport, name, protocol, must_be_one=True)
        confirm(f"Delete {group['protocol']} group {name} with its positions?", yes)
        transport.delete_group(group["protocol"], name)
    print_note(f"deleted {group['protocol']} group {name}")


def _find(
    transport: GroupAdministration, name: str, protocol: str | None, *, must_be_one: bool = False
) -> dict[str, Any]:
    """Return a group by name, of the first protocol that has one.

    Raises LocalError if several have and ``must_be_one``.
    """
    if protocol is None:
        protocol = _find_protocol(transport, name, must_be_one=must_be_one)
    return transport.group(protocol, name)


def _find_protocol(transport: GroupAdministration, name: str, *, must_be_one: bool) -> str:
    """Return the protocol that has a group of a name, or Kafka."""
    from ..model.errors import LocalError

    known = [row["protocol"] for row in transport.groups() if row["group"] == name]
    protocol: str = known[0] if known else "kafka"
    if len(known) > 1:
        several = f"{' and '.join(known)} have a group {name!r}"
        if must_be_one:
            raise LocalError(f"{several}; say which with --protocol")
        print_note(f"{several}; this is the one of {protocol}, see --protocol")
    return protocol
