"""``--storage``: address of an object store and references to its credentials, for commands that reach tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..model.errors import SettingError
from . import profiles

if TYPE_CHECKING:
    from ..tables.storage.storage import StorageReferences

Storage = Annotated[
    list[str] | None,
    typer.Option(
        "--storage", metavar="NAME=VALUE",
        help="How the object store of tables is reached, e.g. region=eu-west-1 or secret_access_key_env=VARIABLE. May "
        "be repeated. Default: what the profile says, else the environment.",
    ),
]  # fmt: skip


def parse_storage(texts: Sequence[str] | None) -> StorageReferences | None:
    """Return the options of ``--storage``, else those of the profile; None if there are neither.

    Options are never taken from both, which could mix two identities. Raises SettingError for unknown options, and for
    credentials themselves, which everybody on the machine could read among the arguments.
    """
    return parse_options(texts) if texts else profiles.storage_of_profile()


def parse_options(texts: Sequence[str], name: str = "--storage") -> StorageReferences:
    """Return the references in all values of the option ``name``. Raises as ``parse_storage``."""
    from ..tables.storage.storage import REFERENCES, StorageReferences
    from ..transports.secrets import is_clear_secret

    options: dict[str, str] = {}
    for text in texts:
        option, mark, value = text.partition("=")
        if not mark or not option:
            raise SettingError(f"{name} {text!r}: write NAME=VALUE, e.g. region=eu-west-1")
        if is_clear_secret(option, value):
            ways = " or ".join(f"{option}{ending}=…" for ending in REFERENCES)
            raise SettingError(
                f"{name} {option}=…: arguments of commands are seen by everybody on this machine; name a variable "
                f"or a file that has it: {ways}"
            )
        if options.setdefault(option, value) != value:
            raise SettingError(f"{name}: {option} is given twice; give it once")
    return StorageReferences.parse(options, Path.cwd(), "", name)
