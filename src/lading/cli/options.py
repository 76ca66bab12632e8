"""Options that several commands share, so that they read alike everywhere."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from .output import Output

DEFAULT_SERVER = "lading://127.0.0.1:7070"

Server = Annotated[
    str,
    typer.Option(
        "--server",
        "-s",
        envvar="LADING_SERVER",
        metavar="URL",
        help="The broker: lading://host:port, iggy://host:port or kafka://host:port.",
    ),
]
From = Annotated[
    str,
    typer.Option(
        "--from", "-f", envvar="LADING_SERVER", metavar="URL|DIR",
        help="Where to read: lading://host:port, iggy://host:port, kafka://host:port, or a broker's data directory.",
    ),
]  # fmt: skip
AsOutput = Annotated[Output, typer.Option("--output", "-o", help="text for people, json for programs.")]
Where = Annotated[
    str | None,
    typer.Option(
        "--where", "-w", metavar="FILTER", help="Only messages it holds for, e.g. \"carrier = 'UA' AND delay > 15\"."
    ),
]
States = Annotated[
    Literal["available", "all"],
    typer.Option("--states", help="available: what consumers may see; all: with poisoned and the like."),
]
