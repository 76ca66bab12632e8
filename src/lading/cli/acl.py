"""``lading acl``: rules that say which user may do what, the same for all protocols."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from .options import DEFAULT_SERVER, AsOutput, Server, word
from .output import Output, print_note, print_table

app = typer.Typer(help="Manage rules: which user may read, write, create or administrate what.", no_args_is_help=True)
COLUMNS = {"user": "user", "rule": "rule", "operation": "operation", "kind": "on", "shown": "name"}
OPERATIONS: Final = (
    "all", "describe", "read", "write", "create", "administrate", "alter", "delete", "alter_configs",
    "describe_configs",
)  # fmt: skip
KINDS: Final = ("topic", "stream", "group", "transaction", "user", "cluster")

User = Annotated[str, typer.Argument(help="User, or * for everybody.")]
OperationWord = Annotated[
    str,
    typer.Argument(parser=word(OPERATIONS), metavar="OPERATION", help=f"What is allowed: {', '.join(OPERATIONS)}."),
]
Name = Annotated[
    str, typer.Argument(help="Name, a prefix that ends with *, or * for all; a topic by its flat name, as in Kafka.")
]
Kind = Annotated[
    str, typer.Option("--kind", "-k", parser=word(KINDS), metavar="|".join(KINDS), help="What the name is of.")
]
InStream = Annotated[bool, typer.Option("--in-stream", help="The name is of a stream: the rule is on its topics.")]
Deny = Annotated[bool, typer.Option("--deny", help="Forbid it, whatever other rules allow.")]


@app.command("list")
def list_rules(server: Server = DEFAULT_SERVER, output: AsOutput = Output.TEXT) -> None:
    """List rules.

    Example:

        lading acl list --output json
    """
    from .connection import admin

    with admin(server) as transport:
        rows = transport.rules()
    shown = [row | {"rule": _format_effect(row), "shown": _format_rule_name(row)} for row in rows]
    print_table(
        rows if output is Output.JSON else shown, COLUMNS, output=output,
        empty="there are no rules; add one: lading acl add USER read 'orders-*'",
    )  # fmt: skip


@app.command()
def add(
    user: User,
    operation: OperationWord,
    name: Name = "",
    kind: Kind = "topic",
    in_stream: InStream = False,
    deny: Deny = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Allow a user to do something, or forbid it. Who reads, writes, creates or administrates may also describe.

    Examples:

        lading acl add ann read 'orders-*'

        lading acl add ann read 'billing-*' --kind group

        lading acl add ann all airlines --kind stream
    """
    from .connection import admin
    from .user import print_unknown_user

    rule = _build_rule(user, operation, name, kind, in_stream=in_stream, deny=deny)
    with admin(server) as transport:
        transport.change_rules(add=[rule])
        print_unknown_user(transport, user)
    print_note(f"{'forbade' if deny else 'allowed'} [bold]{user}[/] {operation} on {kind} {_format_rule_name(rule)}")


@app.command()
def delete(
    user: User,
    operation: OperationWord,
    name: Name = "",
    kind: Kind = "topic",
    in_stream: InStream = False,
    deny: Deny = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Delete a rule, named as it was added.

    Example:

        lading acl delete ann read 'orders-*'
    """
    from ..model.errors import LocalError
    from .connection import admin

    rule = _build_rule(user, operation, name, kind, in_stream=in_stream, deny=deny)
    with admin(server) as transport:
        if rule not in ({name: row[name] for name in rule} for row in transport.rules()):
            raise LocalError("this rule does not exist; list all with lading acl list")
        transport.change_rules(delete=[rule])
    print_note(f"deleted the rule of [bold]{user}[/]: {operation} on {kind} {_format_rule_name(rule)}")


def _build_rule(user: str, operation: str, name: str, kind: str, *, in_stream: bool, deny: bool) -> dict[str, Any]:
    from ..model.errors import LocalError

    if kind == "cluster":
        pattern, name = "literal", "cluster"
    elif not name:
        raise LocalError(f"which {kind} is the rule about? Name one, a prefix such as 'orders-*', or '*'")
    elif in_stream:
        pattern = "in_stream"
    elif name == "*":
        pattern = "any"
    elif name.endswith("*"):
        pattern, name = "prefix", name[:-1]
    else:
        pattern = "literal"
    return {"user": user, "kind": kind, "pattern": pattern, "name": name, "operation": operation, "denies": deny}


def _format_effect(rule: dict[str, Any]) -> str:
    """Return whether a rule allows or denies; one that follows from another permission of an Iggy client says so."""
    return "deny" if rule["denies"] else "allow (implied)" if rule.get("implied") else "allow"


def _format_rule_name(rule: dict[str, Any]) -> str:
    """Return the name of a rule as it is typed."""
    name = str(rule["name"])
    return {"prefix": f"{name}*", "in_stream": f"{name} --in-stream"}.get(rule["pattern"], name)
