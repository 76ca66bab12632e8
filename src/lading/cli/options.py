"""Options that several commands share, so that they are the same everywhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, get_args

import typer

from .output import Output

if TYPE_CHECKING:
    from ..model.address import Address

DEFAULT_SERVER = "lading://127.0.0.1:7070"


WithParent = Annotated[bool, typer.Option("--with-parent", hidden=True, help="Stop when standard input, a pipe, ends.")]
Listener = Annotated[int | None, typer.Option("--listener", hidden=True, help="A bound socket that is handed over.")]


def parse_listen_address(text: str, option: str) -> Address:
    """Return the address to listen on from an option. Raises BadParameter for an invalid one."""
    from ..model.address import parse_address

    try:
        return parse_address(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def word(known: Sequence[str]) -> Callable[[str], str]:
    """Return the parser of an option with these words as values. It raises BadParameter, which names the nearest."""

    def parsed(text: str) -> str:
        if text not in known:
            from ..columns.contract import did_you_mean

            raise typer.BadParameter(f"{text!r} is not one of {', '.join(known)}{did_you_mean(text, known)}")
        return text

    return parsed


def local_path(text: str | Path) -> Path:
    """Parse an option whose value is a local path; a default is a Path already.

    Raises BadParameter for the URL of an object store.
    """
    if isinstance(text, str) and "://" in text:
        raise typer.BadParameter(f"{text!r} is a URL; name a directory of this machine, such as ./data")
    return Path(text)


def split_source(words: Sequence[str], from_: str | None, names: Sequence[str]) -> tuple[str, ...]:
    """Return the source, which is the first of ``words`` or ``--from``, and then the arguments of these names.

    Raises UsageError if one is missing, too many, or if the source is given twice.
    """
    if len(words) == len(names) + 1:
        if from_ is not None:
            raise typer.BadParameter(f"the source is given twice: {words[0]} and --from {from_}; leave one out")
        return tuple(words)
    if len(words) != len(names):
        wanted = " ".join(names)
        raise typer.BadParameter(f"expected {wanted}, or the source and then {wanted}, not {' '.join(words)!r}")
    return (from_ or os.environ.get("LADING_SERVER", DEFAULT_SERVER), *words)


ListenAddress = Annotated[
    str, typer.Option("--address", metavar="HOST:PORT", help="Where to listen on this machine; 0 is a free port.")
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key", metavar="FILE", parser=local_path,
        help="PEM file of its key, without a password. Default: in the file of the certificate.",
    ),
]  # fmt: skip
TopicName = Annotated[str, typer.Argument(help="Topic; one of another stream than default is STREAM.TOPIC.")]
UserName = Annotated[str, typer.Argument(help="Name of the user.")]
Server = Annotated[
    str,
    typer.Option(
        "--server",
        "-s",
        envvar="LADING_SERVER",
        metavar="URL",
        help="Broker URL: lading://, iggy://, kafka:// or nsq://host:port.",
    ),
]
From = Annotated[
    str,
    typer.Option(
        "--from", "-f", "--server", "-s", envvar="LADING_SERVER", metavar="URL|DIR",
        help="Source to read: a lading://, iggy:// or kafka:// URL, or a data directory. Reading an nsq:// URL "
        "consumes messages from the queue.",
    ),
]  # fmt: skip
SOURCE_HELP: Final = (
    "The source, if it is not the first argument. Default: LADING_SERVER, or the broker of this machine."
)
SourceOption = Annotated[
    str | None,
    typer.Option(
        "--from", "-f", "--server", "-s", metavar="URL|DIR",
        help=SOURCE_HELP,
    ),
]  # fmt: skip
"""The option of commands whose source may also be their first argument."""
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Start a new checkpoint where the manifests end, and show again what another writer's rollback of a Delta "
        "or Iceberg table took out of it.",
    ),
]
Ending = Annotated[
    str,
    typer.Option(
        "--ending",
        metavar="PLACE",
        help="Where the run ends: latest for the end of the topic as it is now, an offset, a time like "
        "2026-01-31T12:00 (UTC), or offsets by partition. Not with --follow.",
    ),
]
AsOutput = Annotated[Output, typer.Option("--output", "-o", help="Output format: text or json.")]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        "-w",
        metavar="FILTER",
        help="Keep only messages that match this filter, e.g. \"carrier = 'UA' AND delay > 15\".",
    ),
]
Shown = Literal["available", "all"]
States = Annotated[
    Shown,
    typer.Option(
        "--states", parser=word(get_args(Shown)), metavar="|".join(get_args(Shown)),
        help="available: only messages that consumers can see; all: include poisoned, unavailable and expiring ones.",
    ),
]  # fmt: skip
