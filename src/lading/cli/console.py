"""``lading console``: a web page of a broker or cluster on this machine."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ..model.errors import LocalError
from .options import (
    DEFAULT_SERVER,
    AsOutput,
    KeyFile,
    ListenAddress,
    Listener,
    WithParent,
    local_path,
    parse_listen_address,
)
from .output import Output, print_note

_PARAMETERS: Final = {
    "from": "from_", "pipelines": "pipeline", "mirrors": "mirror", "mirror_services": "mirror_service",
    "tls": "certificate",
}  # fmt: skip
"""Parameters of the command, by the keys of a file that they replace; others have the same name."""


def console(
    context: typer.Context,
    from_: Annotated[
        str,
        typer.Option(
            "--from", "-f", "--server", "-s", envvar="LADING_SERVER", metavar="URL|DIR",
            help="What to show: a lading://, iggy:// or kafka:// URL, or a data directory.",
        ),
    ] = DEFAULT_SERVER,
    brokers: Annotated[
        Path | None,
        typer.Option(
            "--brokers", metavar="FILE", parser=local_path,
            help="Show several brokers and clusters, with a switch between them: TOML file with a table for each.",
        ),
    ] = None,
    address: ListenAddress = "127.0.0.1:7071",
    read_only: Annotated[bool, typer.Option("--read-only", help="Turn everything off that changes something.")] = False,
    pipeline: Annotated[
        list[Path] | None,
        typer.Option("--pipeline", "-p", metavar="FILE", help="Show this pipeline too; repeat for several."),
    ] = None,
    mirror: Annotated[
        list[Path] | None,
        typer.Option(
            "--mirror", metavar="PATH",
            help="Show this mirror: its state directory or its report as JSON. Default: the mirrors of this user.",
        ),
    ] = None,
    mirror_service: Annotated[
        list[str] | None,
        typer.Option(
            "--mirror-service", metavar="URL",
            help="Show the mirrors of this service of `lading mirror run`, such as http://127.0.0.1:9465.",
        ),
    ] = None,
    state: Annotated[
        Path, typer.Option("--state", metavar="DIR", parser=local_path, help="Where redrives remember what they sent.")
    ] = Path(),
    registry: Annotated[
        str | None,
        typer.Option("--registry", metavar="URL", help="Schema registry: show payloads with a schema's id decoded."),
    ] = None,
    tables: Annotated[
        str | None,
        typer.Option(
            "--tables", metavar="URL",
            help="Catalog of `lading tables`: show each topic's table, and what to write in each engine.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", metavar="FILE", parser=local_path,
            help="Serve several people, who log in as users of the source: TOML settings file with address and tls.",
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            "--certificate", metavar="FILE", parser=local_path,
            help="PEM file of a certificate: serve several people over HTTPS, on addresses of other machines too.",
        ),
    ] = None,
    key: KeyFile = None,
    output: AsOutput = Output.TEXT,
    listener: Listener = None,
    with_parent: WithParent = False,
) -> None:  # fmt: skip
    """Show topics, messages, groups and failures in a browser, until Ctrl-C.

    Listens on this machine only and works without a network. Actions that change something ask first. With a
    certificate it serves several people on other machines: they log in as users of the source and have their rights.

    Examples:

        lading console

        lading console --from kafka://127.0.0.1:9092 --read-only

        lading console --from lading://127.0.0.1:7070 --pipeline flights.toml

        lading console --brokers brokers.toml

        lading console --address 0.0.0.0:7443 --certificate server.pem --key server.key
    """
    from ..console.brokers_file import list_brokers, load_brokers
    from ..console.mirror_services import require_service_url
    from ..console.server import run
    from ..console.settings import ConsoleSettings
    from ..console.team.settings import BROKERS, OF_ONE_BROKER
    from ..serve.parent_pipe import end_with_parent

    if with_parent:
        end_with_parent()
    where = parse_listen_address(address, "--address")
    if brokers is not None:
        _refuse_options_of_one(context)
    if config is not None or certificate is not None or key is not None:
        if tables is not None:
            raise LocalError("--tables is for the console of this machine; leave it out for one of several people")
        given: dict[str, Any] = {
            "from": from_,
            "address": str(where),
            "read_only": read_only,
            "pipelines": [str(file.absolute()) for file in pipeline or ()],
            "mirrors": [str(path.absolute()) for path in mirror or ()],
            "mirror_services": mirror_service or [],
            "state": str(state.absolute()),
            "registry": registry,
        }
        if brokers is not None:
            given = {key: value for key, value in given.items() if key not in OF_ONE_BROKER}
            given[BROKERS] = str(brokers.absolute())
        if certificate is not None or key is not None:
            files = {"certificate": certificate, "key": key}
            given["tls"] = {name: str(file.absolute()) for name, file in files.items() if file is not None}
            given["tls"]["enabled"] = True
        raise typer.Exit(_serve_team(context, config, given, output))
    services = tuple(require_service_url(url) for url in mirror_service or ())
    settings = ConsoleSettings(
        from_, where, read_only, tuple(pipeline or ()), tuple(mirror or ()), state, registry, tables, services
    )  # fmt: skip
    shown = [settings]
    if brokers is not None:
        named = load_brokers(brokers)
        shown = [one.make_settings(settings, list_brokers(named, is_read_only=read_only)) for one in named]
    bound = None if listener is None else socket.socket(fileno=listener)
    raise typer.Exit(run(shown, output=output.value, listener=bound, print_note=print_note))


def _refuse_options_of_one(context: typer.Context) -> None:
    """Raise LocalError for an option of the command line that each broker of a file has for itself."""
    from ..console.team.settings import OF_ONE_BROKER

    for key in (*OF_ONE_BROKER, "tables"):
        parameter = _PARAMETERS.get(key, key)
        source = context.get_parameter_source(parameter)
        if source is not None and source.name == "COMMANDLINE":
            option = parameter.rstrip("_").replace("_", "-")
            raise LocalError(
                f"--{option}: each broker of --brokers has its own; write it as {key} in the table of its broker"
            )


def _serve_team(context: typer.Context, config: Path | None, given: dict[str, Any], output: Output) -> int:
    """Serve several people by the settings file, with ``given`` options in place of its keys; return the exit code."""
    from ..console.team.server import run_team
    from ..console.team.settings import BROKERS, KIND, parse_teams
    from ..settings.toml_text import read_toml

    document: dict[str, Any] = {} if config is None else read_toml(config, KIND)
    for key, value in given.items():
        source = context.get_parameter_source(_PARAMETERS.get(key, key))
        # options that are not on the command line keep the file's value
        is_written = source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")
        is_needed = key == "from" and key not in document and BROKERS not in document
        if config is None or is_written or is_needed:
            document[key] = value
    where, base = ("console", Path()) if config is None else (f"{KIND} {config}", config.absolute().parent)
    return run_team(parse_teams(document, where, base), output=output.value, print_note=print_note)
