"""Profiles: named servers, each with its login, in one file of the user."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..model.errors import LocalError
from ..settings.toml_text import find_toml_remedy
from ..transports.secrets import (
    FROM_ENVIRONMENT,
    REFERENCES,
    TRANSPORT_SECRETS,
    expand_variables,
    forget_environment,
    is_clear_secret,
    secret_of,
)

if TYPE_CHECKING:
    from ..tables.storage.storage import StorageReferences

OPTIONS: Final = ("server", *(name for name in FROM_ENVIRONMENT if name not in TRANSPORT_SECRETS))
"""Keys that a profile may have, besides ``${VARIABLE}`` for a secret; profiles never contain the secret itself."""
STORAGE: Final = "storage"
"""The section of a profile with the address of an object store and references to its credentials."""
FILES: Final = tuple(name for name in OPTIONS if name.endswith("_file"))


def profiles_file() -> Path:
    """Return the file of profiles: ``XDG_CONFIG_HOME`` (or ``~/.config``) ``/lading/profiles.toml``."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "lading" / "profiles.toml"


def use_profile(name: str) -> None:
    """Set the environment from the profile; options of commands override it.

    Raises LocalError if the profile does not exist, or has an unknown key.
    """
    file = profiles_file()
    profile, storage = _read(file, name)
    _STORAGE[:] = [] if storage is None else [storage]
    # remove a login from the environment: it belongs to another server
    forget_environment()
    for option, value in profile.items():
        if option in FILES:
            # relative to the file of profiles, from whatever directory a command is run
            value = str(file.parent / Path(str(value)).expanduser())
        os.environ[f"LADING_{option.upper()}"] = str(value).lower() if isinstance(value, bool) else str(value)


_STORAGE: Final[list[StorageReferences]] = []
"""The object store of the process's profile."""


def storage_of_profile() -> StorageReferences | None:
    """Return the object store options of the profile in use; None if it has none, or no profile is used."""
    return _STORAGE[0] if _STORAGE else None


def _read(file: Path, name: str) -> tuple[dict[str, Any], StorageReferences | None]:
    try:
        content = file.read_bytes()
        document = tomllib.loads(content.decode())
    except FileNotFoundError:
        raise LocalError(
            f'--profile {name!r}: {file} does not exist; write into it [{name}] and server = "lading://host:7070"'
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LocalError(f"{file}: invalid TOML: {error}; {find_toml_remedy(error, content)}") from None
    profile = document.get(name)
    if not isinstance(profile, dict):
        listed = ", ".join(document) or "none"
        raise LocalError(f"profile {name!r} is not in {file}{_did_you_mean(name, document)}; there are: {listed}")
    storage = profile.pop(STORAGE, None)
    for option in profile:
        if option not in OPTIONS and option not in TRANSPORT_SECRETS:
            near = _did_you_mean(option, OPTIONS)
            raise LocalError(f"profile {name!r} in {file}: {option!r} is none of {', '.join(OPTIONS)}{near}")
        if is_clear_secret(option, profile[option]):
            raise LocalError(
                f"profile {name!r} in {file}: put the {option} into a file and name it as {option}_file, or write "
                f'{option} = "${{VARIABLE}}"'
            )
    where = f"profile {name!r} in {file}"
    return expand_variables(profile, where), _read_storage(storage, file, where)


def _read_storage(section: object, file: Path, where: str) -> StorageReferences | None:
    if section is None:
        return None
    from ..tables.storage.storage import StorageReferences

    if not (isinstance(section, dict) and all(isinstance(value, str) for value in section.values())):
        raise LocalError(f'{where}: storage is a section with texts, such as region = "eu-west-1"')
    return StorageReferences.parse(section, file.parent, where)


def use_transport_options(texts: Iterable[str]) -> None:
    """Set the environment from ``--transport``; it overrides a profile, and options in a URL override it.

    Raises LocalError for a secret, which everybody on the machine could read among the arguments of a command.
    """
    for text in texts:
        option, mark, value = text.partition("=")
        option = option.strip()
        if option in TRANSPORT_SECRETS:
            raise LocalError(
                f"--transport {option}=…: arguments of commands are seen by everybody on this machine; name a variable "
                f"({option}_env=VARIABLE), a file ({option}_file=…) or a command ({option}_command=…)"
            )
        if not mark or option not in FROM_ENVIRONMENT:
            near = _did_you_mean(option, FROM_ENVIRONMENT)
            taken = ", ".join(name for name in FROM_ENVIRONMENT if name not in TRANSPORT_SECRETS)
            raise LocalError(
                f"--transport {option!r}: it takes OPTION=VALUE with one of {taken}{near}; other options are given in "
                f"the URL: lading://host:7070?{option or 'timeout_s'}=…"
            )
        for other in _list_same_options(option):
            os.environ.pop(f"LADING_{other.upper()}", None)
        os.environ[f"LADING_{option.upper()}"] = value


def _list_same_options(option: str) -> list[str]:
    """Return all options that set the same thing as this one."""
    secret = secret_of(option)
    return [option] if secret is None else [secret, *(f"{secret}{ending}" for ending in REFERENCES)]


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    # imports pyarrow
    from ..columns.contract import did_you_mean

    return did_you_mean(word, known)
