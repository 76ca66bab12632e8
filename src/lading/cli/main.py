"""The ``lading`` command: registers the commands and prints every expected error as one message."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated

import typer

from ..model.errors import LadingError, UnseenHeaderWarning
from ..model.printable import escape_unseen, escape_unseen_in_lines
from ..model.version import __version__
from . import (
    acl,
    backup,
    cert,
    config,
    console,
    contract,
    dead_letters,
    demo,
    doctor,
    group,
    headers,
    ingest,
    message,
    mirror,
    pipeline,
    profile,
    quarantine,
    serve,
    spool,
    sql,
    state,
    stream,
    token,
    topic,
    user,
)
from .nearest import NearestGroup

app = typer.Typer(
    name="lading",
    cls=NearestGroup,
    help="Embedded message broker for Iggy, Kafka and NSQ clients that keeps typed headers intact, into Spark "
    "tables and back.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog="Start with [bold]lading demo[/], or run [bold]lading serve --data ./data[/] and connect any client.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("serve", rich_help_panel="Broker")(serve.serve)
app.command("console", rich_help_panel="Broker")(console.console)
app.command("demo", rich_help_panel="First steps")(demo.demo)
app.command("doctor", rich_help_panel="First steps")(doctor.doctor)
app.add_typer(stream.app, cls=NearestGroup, name="stream", rich_help_panel="Broker")
app.add_typer(topic.app, cls=NearestGroup, name="topic", rich_help_panel="Broker")
app.add_typer(group.app, cls=NearestGroup, name="group", rich_help_panel="Broker")
app.add_typer(user.app, cls=NearestGroup, name="user", rich_help_panel="Broker")
app.add_typer(token.app, cls=NearestGroup, name="token", rich_help_panel="Broker")
app.add_typer(acl.app, cls=NearestGroup, name="acl", rich_help_panel="Broker")
app.add_typer(message.app, cls=NearestGroup, name="message", rich_help_panel="Messages")
app.add_typer(state.app, cls=NearestGroup, name="state", rich_help_panel="Messages")
app.command("headers", rich_help_panel="Messages")(headers.headers)
app.command("profile", rich_help_panel="Messages")(profile.profile)
app.command("mirror", rich_help_panel="Messages")(mirror.mirror)
app.command("sql", rich_help_panel="Messages")(sql.sql)
app.command("ingest", rich_help_panel="Spark")(ingest.ingest)
app.command("spool", rich_help_panel="Spark")(spool.spool)
app.add_typer(pipeline.app, cls=NearestGroup, name="pipeline", rich_help_panel="Spark")
app.add_typer(quarantine.app, cls=NearestGroup, name="quarantine", rich_help_panel="Spark")
app.add_typer(dead_letters.app, cls=NearestGroup, name="dead-letters", rich_help_panel="Messages")
app.add_typer(contract.app, cls=NearestGroup, name="contract", rich_help_panel="Spark")
app.command("backup", rich_help_panel="Broker")(backup.backup)
app.command("restore", rich_help_panel="Broker")(backup.restore)
app.command("cert", rich_help_panel="Broker")(cert.cert)
app.add_typer(config.app, cls=NearestGroup, name="config", rich_help_panel="Broker")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lading {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", envvar="LADING_PROFILE", metavar="NAME",
            help="Server and login by name, from ~/.config/lading/profiles.toml.",
        ),
    ] = None,
    transport: Annotated[
        list[str] | None,
        typer.Option(
            "--transport", metavar="OPTION=VALUE",
            help="How servers are reached, e.g. username=me or password_env=VARIABLE. May be repeated.",
        ),
    ] = None,
) -> None:  # fmt: skip
    """Options of ``lading`` itself."""
    if profile is not None:
        from .profiles import use_profile

        use_profile(profile)
    if transport:
        from .profiles import use_transport_options

        use_transport_options(transport)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. Exit codes: 0 success, 1 a check failed, 2 an error, 130 interrupted."""
    # commands have sentences of their own on headers that no message has
    warnings.simplefilter("ignore", UnseenHeaderWarning)
    try:
        app(args=list(arguments) if arguments is not None else None, prog_name="lading", standalone_mode=True)
    except LadingError as error:
        sys.stderr.write(escape_unseen_in_lines(f"lading: {error}\n"))
        sys.exit(2)
    except BrokenPipeError:
        # the reader of our output went away: no news is the right news
        _close_output()
        sys.exit(0)
    except OSError as error:
        if error.filename is None and error.errno != errno.ENOSPC:
            raise
        # a path that a user named and that no command looked at closer, or a full disk behind our output
        place = "standard output" if error.filename is None else os.fsdecode(error.filename)
        sys.stderr.write(f"lading: {escape_unseen(place)}: {error.strerror}\n")
        if error.filename is None:
            _close_output()
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _close_output() -> None:
    """Discard what is still buffered for stdout, so that Python does not try to write it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
