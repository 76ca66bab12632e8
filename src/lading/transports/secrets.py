"""Passwords and tokens of transports: from an option, a file or the environment, and never from a URL."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, MutableMapping
from pathlib import Path
from typing import Any, Final

from ..model.errors import SettingError

PREFIX: Final = "LADING_"
SECRETS: Final = frozenset({"password", "token", "auth_secret", "oauth_token"})
"""Options that stand in no URL: URLs are logged, and arguments of commands are seen by everybody on a machine."""
FROM_ENVIRONMENT: Final = (
    "tls", "ca_file", "certificate_file", "key_file", "username", "sasl_mechanism",
    *(f"{name}{ending}" for name in sorted(SECRETS) for ending in ("", "_file")),
)  # fmt: skip
"""Options whose default is a variable of the environment: ``LADING_CA_FILE`` for ``ca_file``."""


def add_environment(
    options: Mapping[str, Any], known: Collection[str], environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the options of a connection, with what the environment says of those that are not given.

    A secret that is given replaces that of a file, and the other way round.
    """
    variables = os.environ if environment is None else environment
    found = dict(options)
    for name in FROM_ENVIRONMENT:
        value = variables.get(PREFIX + name.upper())
        secret = name.removesuffix("_file")
        is_given = name in options or (secret in SECRETS and (secret in options or f"{secret}_file" in options))
        if value and name in known and not is_given:
            found[name] = value
    return found


def forget_environment(environment: MutableMapping[str, str] | None = None) -> None:
    """Take these variables out of the environment of this process: what it starts itself is not that server."""
    variables = os.environ if environment is None else environment
    for name in FROM_ENVIRONMENT:
        variables.pop(PREFIX + name.upper(), None)


def read_secret(name: str, value: str | None, file: str | None) -> str | None:
    """Return a secret that is given, or that a file holds and nothing else; SettingError if it cannot be read."""
    if file is None:
        return value
    if value is not None:
        raise SettingError(f"{name} and {name}_file are both given; give one of them")
    try:
        text = Path(file).read_text().strip()
    except (OSError, ValueError) as error:
        raise SettingError(f"{name}_file {file!r}: {getattr(error, 'strerror', None) or 'not a text'}") from None
    if not text:
        raise SettingError(f"{name}_file {file!r}: empty; it holds the {name} and nothing else")
    return text
