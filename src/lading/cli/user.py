"""``lading user``: who may log in, with a broker or on a data directory that none uses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .options import DEFAULT_SERVER, AsOutput, Server, UserName, local_path
from .output import Output, print_note, print_table
from .passwords import PasswordFile, read_password

app = typer.Typer(
    help="Manage the users who may log in; the first one closes the broker to strangers.", no_args_is_help=True
)
COLUMNS = {"id": "id", "name": "user", "administrator": "administrator", "active": "active", "created": "created"}
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        "-d",
        parser=local_path,
        metavar="DIR",
        help="Data directory of a broker that is stopped, not --server.",
    ),
]


@app.command("list")
def list_users(data: Data = None, server: Server = DEFAULT_SERVER, output: AsOutput = Output.TEXT) -> None:
    """List users; nothing secret is shown.

    Example:

        lading user list --output json
    """
    from .connection import admin
    from .output import format_date

    if data is not None:
        from ..serve import open_access

        with open_access(data) as access:
            rows: list[dict[str, Any]] = [
                {
                    "id": user.id,
                    "name": user.name,
                    "administrator": user.is_administrator,
                    "active": user.is_active,
                    "created_us": user.created_us,
                }
                for user in access.table.users.values()
            ]
    else:
        with admin(server) as transport:
            rows = transport.users()
    shown = [row | {"id": str(row["id"]), "created": format_date(row["created_us"])} for row in rows]
    print_table(rows if output is Output.JSON else shown, COLUMNS, output=output)


@app.command()
def add(
    name: UserName,
    administrator: Annotated[
        bool, typer.Option("--admin", help="May do everything, whatever the rules say; the first user has to.")
    ] = False,
    password_file: PasswordFile = None,
    data: Data = None,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Add a user; asks for the password. From the first user on, every client has to log in.

    Examples:

        lading user add root --admin --data ./data

        lading user add ann --password-file ann.txt
    """
    from ..clock import now_us
    from .connection import admin

    password = read_password(f"Password of {name}", password_file, is_new=True)
    if data is not None:
        from ..serve import change_access

        change_access(
            data, lambda access: access.add_user(name, password, now_us=now_us(), is_administrator=administrator)
        )
    else:
        with admin(server) as transport:
            transport.add_user(name, password, administrator=administrator)
    print_note(f"added user [bold]{name}[/]")


@app.command()
def password(
    name: UserName, password_file: PasswordFile = None, data: Data = None, server: Server = DEFAULT_SERVER
) -> None:
    """Give a user another password; asks for it. Connections and tokens stay.

    Example:

        lading user password ann
    """
    from .connection import admin

    word = read_password(f"New password of {name}", password_file, is_new=True)
    if data is not None:
        from ..serve import change_access

        change_access(data, lambda access: access.set_password(name, word))
    else:
        with admin(server) as transport:
            transport.set_password(name, word)
    print_note(f"changed the password of user [bold]{name}[/]")


@app.command()
def delete(
    name: UserName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    data: Data = None,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Delete a user with its tokens and rules, and end its connections; asks first.

    Example:

        lading user delete ann --yes
    """
    from .connection import admin, confirm

    confirm(f"Delete user {name!r} with its tokens and rules?", yes)
    if data is not None:
        from ..serve import change_access

        change_access(data, lambda access: access.delete_user(name))
    else:
        with admin(server) as transport:
            transport.delete_user(name)
    print_note(f"deleted user [bold]{name}[/]")
