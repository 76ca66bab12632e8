"""``lading token``: personal access tokens, with which programs log in instead of a name and a password."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import DEFAULT_SERVER, AsOutput, Server
from .output import Output, line, print_note, print_table
from .passwords import PasswordFile, read_password

app = typer.Typer(help="Manage access tokens, which programs show instead of a password.", no_args_is_help=True)
COLUMNS = {"name": "token", "created": "created", "ends": "ends"}
TokenName = Annotated[str, typer.Argument(help="Name of the token, by which it is deleted.")]
Owner = Annotated[str, typer.Option("--user", "-u", help="User whom the token stands for.")]


@app.command("list")
def list_tokens(user: Owner, server: Server = DEFAULT_SERVER, output: AsOutput = Output.TEXT) -> None:
    """List the tokens of a user, without what they are.

    Example:

        lading token list --user ann
    """
    from .connection import admin
    from .output import format_date

    with admin(server) as transport:
        rows = transport.tokens(user)
    shown = [
        row
        | {
            "created": format_date(row["created_us"]),
            "ends": format_date(row["ends_us"]) if row["ends_us"] else "never",
        }
        for row in rows
    ]
    print_table(
        rows if output is Output.JSON else shown, COLUMNS, output=output,
        empty=f"user {user} has no tokens; create one: lading token create NAME --user {user}",
    )  # fmt: skip


@app.command()
def create(
    name: TokenName,
    user: Owner,
    days: Annotated[float | None, typer.Option("--days", min=0.001, help="Days until it ends. Default: never.")] = None,
    log_in: Annotated[
        bool, typer.Option("--log-in", help="Log in as that user: asks for the password instead of using LADING_TOKEN.")
    ] = False,
    password_file: PasswordFile = None,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Create a token and print it to standard output, once: only a hash of it is kept.

    Examples:

        export LADING_TOKEN=$(lading token create laptop --user root --log-in --days 30)

        lading token create ci --user ann
    """
    from .connection import admin

    with admin(server) as transport:
        if log_in or password_file is not None:
            transport.log_in(user, read_password(f"Password of {user}", password_file))
        line(transport.add_token(user, name, days))
    print_note(f"created token [bold]{name}[/] of user [bold]{user}[/]; it is not shown again")


@app.command()
def delete(name: TokenName, user: Owner, server: Server = DEFAULT_SERVER) -> None:
    """Delete a token, and end the connections that were made with it.

    Example:

        lading token delete ci --user ann
    """
    from .connection import admin

    with admin(server) as transport:
        transport.delete_token(user, name)
    print_note(f"deleted token [bold]{name}[/] of user [bold]{user}[/]")
