"""``lading console``: a web page of a broker or cluster on this machine."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

import typer

from .options import DEFAULT_SERVER, AsOutput, Listener, WithParent, local_path, parse_listen_address
from .output import Output, print_note


def console(
    from_: Annotated[
        str,
        typer.Option(
            "--from", "-f", "--server", "-s", envvar="LADING_SERVER", metavar="URL|DIR",
            help="What to show: a lading://, iggy:// or kafka:// URL, or a data directory.",
        ),
    ] = DEFAULT_SERVER,
    address: Annotated[
        str, typer.Option("--address", metavar="HOST:PORT", help="Where to listen on this machine; 0 is a free port.")
    ] = "127.0.0.1:7071",
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
    state: Annotated[
        Path, typer.Option("--state", metavar="DIR", parser=local_path, help="Where redrives remember what they sent.")
    ] = Path(),
    registry: Annotated[
        str | None,
        typer.Option("--registry", metavar="URL", help="Schema registry: show payloads with a schema's id decoded."),
    ] = None,
    output: AsOutput = Output.TEXT,
    listener: Listener = None,
    with_parent: WithParent = False,
) -> None:  # fmt: skip
    """Show topics, messages, groups and failures in a browser, until Ctrl-C.

    Listens on this machine only and works without a network. Actions that change something ask first.

    Examples:

        lading console

        lading console --from kafka://127.0.0.1:9092 --read-only

        lading console --from lading://127.0.0.1:7070 --pipeline flights.toml
    """
    from ..console.server import run
    from ..console.settings import ConsoleSettings
    from ..serve.parent_pipe import end_with_parent

    where = parse_listen_address(address, "--address")
    if with_parent:
        end_with_parent()
    settings = ConsoleSettings(from_, where, read_only, tuple(pipeline or ()), tuple(mirror or ()), state, registry)
    given = None if listener is None else socket.socket(fileno=listener)
    raise typer.Exit(run(settings, output=output.value, listener=given, print_note=print_note))
