"""Sources of settings: a TOML file, the environment, ``--set`` options, and files that hold one token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..model.errors import SettingError
from ..model.lazy_dataclass import lazy_dataclass
from .toml_text import read_toml

ENVIRONMENT_PREFIX = "LADING__"
ARGUMENT = "--set"
"""The origin of values that stand in the process list."""


@lazy_dataclass(frozen=True, slots=True)
class Given:
    """A value and its origin."""

    value: Any
    origin: str


def from_file(config: Path | None) -> Iterator[tuple[str, Any, str]]:
    """Yield key, value and origin of each setting in a TOML file; nothing without a file."""
    if config is None:
        return
    document = read_toml(config, "settings file")
    yield from ((key, value, str(config)) for key, value in _list_leaves("", document))


def from_environment(env: Mapping[str, str]) -> Iterator[tuple[str, Any, str]]:
    """Yield what the variables of the environment set."""
    for name, value in sorted(env.items()):
        if name.upper().startswith(ENVIRONMENT_PREFIX):
            yield name[len(ENVIRONMENT_PREFIX) :].lower().replace("__", "."), value, f"environment {name}"


def from_options(sets: Sequence[str]) -> Iterator[tuple[str, Any, str]]:
    """Yield what ``--set`` options set."""
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise SettingError(f"--set {text!r}: not a key=value; write --set durability=os, for example")
        yield key.strip(), value.strip(), ARGUMENT


def _list_leaves(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _list_leaves(f"{prefix}.{name}" if prefix else name, inner)
    else:
        yield prefix, value


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return tables within tables for dotted keys."""
    root: dict[str, Any] = {}
    for key, value in flat.items():
        *path, last = key.split(".")
        table = root
        for name in path:
            table = table.setdefault(name, {})
        table[last] = value
    return root


def read_token_file(key: str, path: Path) -> str:
    """Return the token in a file that the setting ``key`` names, without white space around it."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SettingError(f"setting {key}: cannot read {path}: {error.strerror}; check its path and rights") from None
    except UnicodeDecodeError:
        raise SettingError(f"setting {key}: {path} is not UTF-8 text; write the token alone into it") from None
    if not token or len(token.split()) > 1:
        raise SettingError(
            f"setting {key}: {path} holds {'more than' if token else 'not'} one word; write the token alone into it"
        )
    return token
