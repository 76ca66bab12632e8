"""``lading user``: users who may log in, with a broker or on a data directory that no broker uses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import DEFAULT_SERVER, AsOutput, Server, UserName, local_path
from .output import Output, format_size, print_note, print_table
from .passwords import PasswordFile, read_password

if TYPE_CHECKING:
    from ..transports.lading.transport import LadingTransport

app = typer.Typer(
    help="Manage the users who may log in; the first one closes the broker to strangers.", no_args_is_help=True
)
COLUMNS = {"id": "id", "name": "user", "administrator": "administrator", "active": "active", "created": "created"}
QUOTA_COLUMNS = {
    "producer_byte_rate": "send", "consumer_byte_rate": "read", "request_percentage": "requests",
}  # fmt: skip
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
        from ..serve.serve import open_access

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
    print_table(
        rows if output is Output.JSON else shown, COLUMNS, output=output,
        empty="there are no users; add the first one: lading user add NAME --admin",
    )  # fmt: skip


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
    from ..runtime.clock import now_us
    from .connection import admin

    password = read_password(f"Password of {name}", password_file, is_new=True)
    if data is not None:
        from ..serve.serve import change_access

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
        from ..serve.serve import change_access

        change_access(data, lambda access: access.set_password(name, word))
    else:
        with admin(server) as transport:
            transport.set_password(name, word)
    print_note(f"changed the password of user [bold]{name}[/]")


@app.command()
def quota(
    name: Annotated[str | None, typer.Argument(help="User, or * for all who have no quota of their own.")] = None,
    send: Annotated[
        str | None, typer.Option("--send", metavar="SIZE", help="Bytes a second of what is sent, or none.")
    ] = None,
    read: Annotated[
        str | None, typer.Option("--read", metavar="SIZE", help="Bytes a second of what is read, or none.")
    ] = None,
    requests: Annotated[
        str | None,
        typer.Option("--requests", metavar="PERCENT", help="Share of the event loop's time for requests, or none."),
    ] = None,
    server: Server = DEFAULT_SERVER,
    output: AsOutput = Output.TEXT,
) -> None:
    """Show quotas, or change one: how much a user may send, read, and keep the broker busy.

    Who has used up a quota is slowed down, and refused nothing. It holds at once, for open connections too.

    Examples:

        lading user quota

        lading user quota ann --send 10MB --read 20MB

        lading user quota ann --send none
    """
    from ..model.errors import LocalError
    from .connection import admin

    given = dict(zip(QUOTA_COLUMNS, (send, read, requests), strict=True))
    changes = {key: _parse_rate(key, text) for key, text in given.items() if text is not None}
    if changes and name is None:
        raise LocalError("which user's quota? Name one, or '*' for all who have none of their own")
    with admin(server) as transport:
        if name is not None and changes:
            rows = [row for row in transport.quotas() if row["user"] == name]
            before = {key: value for row in rows for key, value in row.items() if key != "user"}
            wanted = {key: value for key, value in {**before, **changes}.items() if value is not None}
            transport.set_quota(name, wanted)
            print_unknown_user(transport, name)
        rows = [row for row in transport.quotas() if name in (None, row["user"])]
    if name is not None and not rows:
        # also print an empty quota, as requested
        rows = [{"user": name}]
    formatted = [
        {"user": row["user"], **{key: _format_quota(key, row.get(key)) for key in QUOTA_COLUMNS}} for row in rows
    ]
    print_table(
        rows if output is Output.JSON else formatted, {"user": "user", **QUOTA_COLUMNS}, output=output,
        empty="no user has a quota; set one: lading user quota USER --send 10MB",
    )  # fmt: skip


def print_unknown_user(transport: LadingTransport, name: str) -> None:
    """Print a note, with similar names, if user ``name`` does not exist: it may only be known to a token issuer or a
    certificate.
    """
    from ..columns.contract import did_you_mean
    from ..model.errors import Refusal

    try:
        known = [user["name"] for user in transport.users()]
    except Refusal:
        # the right to change rules does not include the right to list users
        return
    if name != "*" and name not in known:
        near = did_you_mean(name, known)
        print_note(
            f"user {name!r} does not exist here{near}: right for names that a token issuer or certificates give, else "
            f"add it with lading user add {name}"
        )


def _format_quota(key: str, quota: float | None) -> str:
    if quota is None:
        return "-"
    return f"{quota:g} %" if key == "request_percentage" else f"{format_size(quota).replace('.0 ', ' ')}/s"


def _parse_rate(key: str, text: str) -> float | None:
    """Return a rate as users type it; None without one."""
    from ..client.units import parse_size_bytes
    from ..model.errors import SettingError

    if text == "none":
        return None
    if key != "request_percentage":
        return float(parse_size_bytes(text))
    try:
        return float(text.removesuffix("%"))
    except ValueError:
        raise SettingError(f"{text!r} is not a percentage such as 25") from None


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
        from ..serve.serve import change_access

        change_access(data, lambda access: access.delete_user(name))
    else:
        with admin(server) as transport:
            transport.delete_user(name)
    print_note(f"deleted user [bold]{name}[/]")


@app.command()
def reset(
    data: Annotated[
        Path,
        typer.Option(
            "--data", "-d", parser=local_path, metavar="DIR", help="Data directory of a broker that is stopped."
        ),
    ],
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", parser=local_path, metavar="FILE",
            help="An access.json, such as that of a restored backup. Default: no users.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:  # fmt: skip
    """Replace all users, tokens, rules and quotas by those of a file, or by none; asks first.

    For a directory whose access.json is damaged, missing or older than the last one, which no broker starts with. The
    file that was there is kept beside it.

    Examples:

        lading user reset --data ./data --file ./restored/access.json

        lading user reset --data ./data --yes
    """
    from datetime import UTC, datetime

    from ..serve.serve import reset_access
    from .connection import confirm

    whose = "no users, so that the broker lets everybody in" if file is None else f"those of {file}"
    confirm(f"Replace the users, tokens, rules and quotas of {data} by {whose}?", yes)
    aside = f"access.json.until-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    count = reset_access(data, file, aside)
    if count:
        print_note(f"[bold]{data}[/] has the {count} users of {file}")
    else:
        print_note(f"[bold]{data}[/] has no users: add the first one with lading user add NAME --admin --data {data}")
