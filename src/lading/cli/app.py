"""The commands of ``lading``: the module and function of each, and its heading in ``--help``."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer

from ..model.version import __version__
from .nearest import CopyingGroup, CreatingGroup, NearestGroup
from .plain_command import PlainCommand

SPARK: Final = "Spark"
"""The heading of commands that may start Spark."""


class CommandRow(NamedTuple):
    """A command, or a group of commands: its name, its module in this package, its heading."""

    name: str
    module: str
    heading: str
    attribute: str = "app"
    """Name in the module: a ``Typer`` called ``app`` is a group of commands, anything else the function of
    one command.
    """
    group: type[NearestGroup] = NearestGroup
    """The class that reads the command line of a group."""

    @property
    def is_lean(self) -> bool:
        """Whether it does not need pandas: Spark's driver may need it, and importing it is half of a short command's
        time.
        """
        return self.heading != SPARK and self.name != "demo"


COMMANDS: Final = (
    CommandRow("serve", "serve", "Broker", "serve"),
    CommandRow("console", "console", "Broker", "console"),
    CommandRow("tables", "tables", "Broker", "tables"),
    CommandRow("demo", "demo", "First steps", "demo"),
    CommandRow("doctor", "doctor", "First steps", "doctor"),
    CommandRow("headers", "headers", "Messages", "headers"),
    CommandRow("profile", "profile", "Messages", "profile"),
    CommandRow("mirror", "mirror", "Messages", group=CopyingGroup),
    CommandRow("verify", "verify", "Messages", "verify"),
    CommandRow("conformance", "conformance", "Messages", "conformance"),
    CommandRow("sql", "sql", "Messages", "sql"),
    CommandRow("ingest", "ingest", SPARK, "ingest"),
    CommandRow("spool", "spool", SPARK, "spool"),
    CommandRow("backup", "backup", "Broker", group=CreatingGroup),
    CommandRow("restore", "backup", "Broker", "restore"),
    CommandRow("cert", "cert", "Broker", "cert"),
    CommandRow("stream", "stream", "Broker"),
    CommandRow("topic", "topic", "Broker"),
    CommandRow("group", "group", "Broker"),
    CommandRow("user", "user", "Broker"),
    CommandRow("token", "token", "Broker"),
    CommandRow("acl", "acl", "Broker"),
    CommandRow("message", "message", "Messages"),
    CommandRow("state", "state", "Messages"),
    CommandRow("pipeline", "pipeline", SPARK),
    CommandRow("table", "table", SPARK),
    CommandRow("quarantine", "quarantine", SPARK),
    CommandRow("dead-letters", "dead_letters", "Messages"),
    CommandRow("contract", "contract", SPARK),
    CommandRow("config", "config", "Broker"),
)
"""All commands; under one heading in the order in which help lists them."""


def build_app(only: str | None = None) -> typer.Typer:
    """Return the application with all commands, or with one of them alone.

    Commands that the command line does not name would cost time: defining all options of all commands takes as long as
    most commands run.
    """
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
    app.callback()(root)
    for row in COMMANDS:
        if only in (None, row.name):
            found = getattr(import_module(f"{__package__}.{row.module}"), row.attribute)
            if isinstance(found, typer.Typer):
                for command in found.registered_commands:
                    command.cls = PlainCommand
                app.add_typer(found, cls=row.group, name=row.name, rich_help_panel=row.heading)
            else:
                app.command(row.name, cls=PlainCommand, rich_help_panel=row.heading)(found)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lading {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Show the version and exit.")
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


@cache
def _build_whole() -> Any:
    return typer.main.get_command(build_app())


# mistaken command lines are compared with all commands, even if only one was built
NearestGroup.build_whole = staticmethod(_build_whole)
