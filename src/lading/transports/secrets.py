"""Secrets of transports and object stores: from an option, a file, a variable or a command, and never from a URL."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from ..model.errors import SettingError

PREFIX: Final = "LADING_"
TRANSPORT_SECRETS: Final = frozenset({"password", "token", "auth_secret", "oauth_token"})
STORAGE_SECRETS: Final = frozenset(
    {
        "access_key_id", "secret_access_key", "session_token", "account_key", "client_secret", "sas_token",
        "service_account_key",
    }
)  # fmt: skip
"""Credentials of object stores, in ``[storage]`` of a pipeline; names of keys change with their keys."""
SECRETS: Final = TRANSPORT_SECRETS | STORAGE_SECRETS
"""Options that stand in no URL: URLs are logged, and arguments of commands are seen by everybody on a machine."""
FILE, VARIABLE, COMMAND = "_file", "_env", "_command"
REFERENCES: Final = (FILE, VARIABLE, COMMAND)
"""Endings of options that refer to a secret: a file, a variable of the environment, the output of a command."""
FROM_ENVIRONMENT: Final = (
    "tls", "ca_file", "certificate_file", "key_file", "username", "sasl_mechanism",
    *(f"{name}{ending}" for name in sorted(TRANSPORT_SECRETS) for ending in ("", *REFERENCES)),
)  # fmt: skip
"""Options whose default is a variable of the environment: ``LADING_CA_FILE`` for ``ca_file``."""
COMMAND_TIMEOUT_S: Final = 30.0
_VARIABLE: Final = re.compile(r"\$\{([^{}]*)\}")


def secret_of(name: str) -> str | None:
    """Return the secret that an option gives or refers to; None for other options."""
    for ending in ("", *REFERENCES):
        if name.endswith(ending) and (stem := name.removesuffix(ending)) in SECRETS:
            return stem
    return None


def is_clear_secret(name: str, value: object) -> bool:
    """Return whether an option is a secret itself, other than ``${VARIABLE}``."""
    return name in SECRETS and not (isinstance(value, str) and _VARIABLE.fullmatch(value.strip()))


def clear_secret_sentence(where: str, name: str, endings: Sequence[str] = (VARIABLE, FILE, COMMAND)) -> str:
    """Return the sentence about a secret that stands in a file in clear text; ``endings`` are what can stand there."""
    *ways, last = [f'{name} = "${{VARIABLE}}"', *(f"{name}{ending}" for ending in endings)]
    return (
        f"{where}.{name} is in the file in clear text, where copies and backups have it too; "
        f"write {', '.join(ways)} or {last} instead"
    )


def reference_names(known: Collection[str]) -> Iterator[str]:
    """Yield the options that refer to the secrets among ``known``, without those that are known themselves."""
    for name in known:
        if name in SECRETS:
            yield from (f"{name}{ending}" for ending in REFERENCES if f"{name}{ending}" not in known)


def expand_variables(
    options: Mapping[str, Any], where: str, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the options of a file with variables of the environment in place: ``${NAME}`` in texts, ``…_env`` whole.

    Each process does that for itself: what travels is what stands in the file. Raises SettingError, which names
    ``where`` and the option, for a variable that is not set, and for a secret that is given twice.
    """
    variables = os.environ if environment is None else environment

    def value_of(option: str, variable: str) -> str:
        if not (value := variables.get(variable)):
            raise SettingError(f"{where}.{option}: the variable {variable!r} is not set in the environment; set it")
        return value

    found: dict[str, Any] = {}
    for name, value in options.items():
        secret = secret_of(name)
        if secret is not None and name == f"{secret}{VARIABLE}":
            if secret in options:
                raise SettingError(f"{where}: {secret} and {name} are both given; give one of them")
            found[secret] = value_of(name, str(value))
        elif isinstance(value, str):
            found[name] = _VARIABLE.sub(partial(_replace, value_of, name), value)
        else:
            found[name] = value
    return found


def name_process() -> str:
    """Return how errors name this process, one of several that follow the references of a file."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def _replace(value_of: Callable[[str, str], str], option: str, found: re.Match[str]) -> str:
    return value_of(option, found[1])


def read_references(
    options: Mapping[str, Any], known: Collection[str], environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the options with secrets in place of the options that refer to them.

    Options among ``known`` stay: their transport reads them itself, for each connection. SettingError if a secret is
    given in two ways, or is not there.
    """
    variables = os.environ if environment is None else environment
    found: dict[str, Any] = {}
    ways: dict[str, str] = {}
    for name, value in options.items():
        secret = secret_of(name)
        if secret is not None and (other := ways.setdefault(secret, name)) != name:
            raise SettingError(f"{other} and {name} are both given; give one of them")
        if secret is None or name in known or name == secret:
            found[name] = value
        elif name.endswith(VARIABLE):
            if not (text := variables.get(str(value))):
                raise SettingError(f"{name}: the variable {value!r} is not set in the environment; set it")
            found[secret] = text
        elif name.endswith(COMMAND):
            found[secret] = run_secret_command(name, str(value))
        else:
            found[secret] = read_secret(secret, None, str(value))
    return found


def run_secret_command(name: str, command: str) -> str:
    """Return what a command prints, without white space around it; ``name`` is the option that gives it.

    No shell reads the command. Raises SettingError if it cannot be run, fails or prints nothing; its output is not
    shown.
    """
    try:
        words = shlex.split(command)
        # arguments may be secrets too
        shown = words[0]
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
    except (ValueError, IndexError):
        raise SettingError(f"{name}: not a command; write it as in a shell, with its quotes closed") from None
    except subprocess.TimeoutExpired:
        raise SettingError(
            f"{name}: {shown!r} did not end within {COMMAND_TIMEOUT_S:.0f} s; give a command that ends by itself"
        ) from None
    except OSError as error:
        raise SettingError(f"{name}: {shown!r} cannot be run: {error.strerror}; check the command") from None
    if done.returncode:
        raise SettingError(f"{name}: {shown!r} failed with exit code {done.returncode}; run it to see why")
    if not (text := done.stdout.strip()):
        raise SettingError(f"{name}: {shown!r} printed nothing; it prints the secret and nothing else")
    return text


def add_environment(
    options: Mapping[str, Any], known: Collection[str], environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the options of a connection, with what the environment says of those that are not given.

    A secret that is given in one way replaces that of any other way.
    """
    variables = os.environ if environment is None else environment
    found = dict(options)
    given = {secret_of(name) or name for name in options}
    for name in FROM_ENVIRONMENT:
        value = variables.get(PREFIX + name.upper())
        if value and name in known and (secret_of(name) or name) not in given:
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
        raise SettingError(
            f"{name}_file {file!r}: {getattr(error, 'strerror', None) or 'not a text'}; "
            f"write the {name} there, so that this process may read it"
        ) from None
    if not text:
        raise SettingError(f"{name}_file {file!r}: empty; it holds the {name} and nothing else")
    return text
