"""Profiles: servers by name, each with what it takes to log in there, in one file of the user."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from ..model.errors import LocalError
from ..transports.secrets import FROM_ENVIRONMENT, SECRETS, forget_environment

OPTIONS: Final = ("server", *(name for name in FROM_ENVIRONMENT if name not in SECRETS))
"""What a profile may say. Secrets stand in files of their own, as on every other way."""
FILES: Final = tuple(name for name in OPTIONS if name.endswith("_file"))


def profiles_file() -> Path:
    """Return where profiles stand: ``XDG_CONFIG_HOME`` (or ``~/.config``) ``/lading/profiles.toml``."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "lading" / "profiles.toml"


def use_profile(name: str) -> None:
    """Set the environment as the profile says; options of commands count more.

    Raises LocalError if there is no such profile, or if it says what no profile can.
    """
    file = profiles_file()
    profile = _read(file, name)
    # a login that the environment has is another server's
    forget_environment()
    for option, value in profile.items():
        if option in FILES:
            # beside the file of profiles, wherever a command is called
            value = str(file.parent / Path(str(value)).expanduser())
        os.environ[f"LADING_{option.upper()}"] = str(value).lower() if isinstance(value, bool) else str(value)


def _read(file: Path, name: str) -> dict[str, Any]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LocalError(
            f'--profile {name!r}: {file} does not exist; write into it [{name}] and server = "lading://host:7070"'
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LocalError(f"{file}: invalid TOML: {error}") from None
    profile = document.get(name)
    if not isinstance(profile, dict):
        listed = ", ".join(document) or "none"
        raise LocalError(f"profile {name!r} is not in {file}{_did_you_mean(name, document)}; there are: {listed}")
    for option in profile:
        if option in SECRETS:
            raise LocalError(f"profile {name!r} in {file}: put the {option} into a file and name it as {option}_file")
        if option not in OPTIONS:
            near = _did_you_mean(option, OPTIONS)
            raise LocalError(f"profile {name!r} in {file}: {option!r} is none of {', '.join(OPTIONS)}{near}")
    return profile


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    # imports pyarrow
    from ..columns.contract import did_you_mean

    return did_you_mean(word, known)
