"""Loading settings: one TOML file, environment ``LADING__A__B``, ``--set a.b=c``, in rising order (design.md Process).

A key that ``settings`` does not declare is refused with a suggestion.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args, get_origin

from pydantic import SecretStr, ValidationError

from ..model.errors import SettingError
from ..model.lazy_dataclass import lazy_dataclass
from ..model.value_faults import describe_fault
from .endpoints import endpoint_key
from .sections import EndpointSection, TokenSettings
from .settings import EndpointSettings, Section, Settings, is_secret
from .sources import Given, from_environment, from_file, from_options, nest, read_token_file

USERS_FILE: Final = "access.json"
"""The file of users in the data directory, once users are set up (docs/reference/formats.md)."""
USERS_MARK: Final = "rights.serial"
"""A mark next to it: the file must exist, so that a missing one is noticed."""


@lazy_dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, and by dotted key the source of each value that is not a default."""

    settings: Settings
    origins: dict[str, str]


def load(config: Path | None = None, sets: Sequence[str] = (), env: Mapping[str, str] | None = None) -> Loaded:
    """Return the settings of ``config`` (TOML), then ``env``, then ``sets`` (``a.b=c``), each over the one before.

    Raises SettingError, one sentence that names file, variable or option and the key: unreadable file, unknown key
    (with a suggestion), a value of the wrong type, an open bind without credentials.
    """
    given: dict[str, Given] = {}
    for key, value, origin in (*from_file(config), *from_environment(env or {}), *from_options(sets)):
        _require_known(key, value, origin)
        given[key] = Given(value, origin)
    try:
        settings = Settings.model_validate(nest({key: item.value for key, item in given.items()}))
    except ValidationError as error:
        raise SettingError(_describe_error(error, given)) from None
    settings = _with_token_files(settings)
    _require_credentials(settings)
    return Loaded(
        settings, {key: item.origin for key, item in given.items()} | _list_inherited_origins(settings, given)
    )


def _list_inherited_origins(settings: Settings, given: Mapping[str, Given]) -> dict[str, str]:
    """Return the origins of the values that listeners inherit from their endpoint."""
    origins: dict[str, str] = {}
    for name, _ in settings.endpoints.sections():
        endpoint = f"endpoints.{name.partition('.')[0]}."
        key = endpoint_key(name) + "."
        for other, item in given.items():
            if key != endpoint and other.startswith(endpoint) and key + other.removeprefix(endpoint) not in given:
                origins[key + other.removeprefix(endpoint)] = item.origin
    return origins


def _section_of(field_type: Any) -> type[Section] | None:
    return field_type if isinstance(field_type, type) and issubclass(field_type, Section) else None


def _section_of_tables(field_type: Any) -> type[Section] | None:
    """Return the section of each of several tables that users name, such as listeners; None for any other type."""
    return _section_of(get_args(field_type)[1]) if get_origin(field_type) is Mapping else None


def keys(section: type[Section] = Settings, prefix: str = "") -> list[str]:
    """Return every dotted key of a section."""
    found: list[str] = []
    for name, field in section.model_fields.items():
        inner = _section_of(field.annotation)
        found += keys(inner, f"{prefix}{name}.") if inner else [prefix + name]
    return found


def _require_known(key: str, value: Any, origin: str) -> None:
    section: type[Section] = Settings
    path = key.split(".")
    is_named = False
    for depth, name in enumerate(path):
        if is_named:
            is_named = False
            continue
        field = section.model_fields.get(name)
        parent = ".".join(path[:depth])
        if field is None:
            siblings = [f"{parent}.{sibling}" if parent else sibling for sibling in section.model_fields]
            near = difflib.get_close_matches(".".join(path[: depth + 1]), siblings, 1, 0.75)
            if not near and depth == 0:
                near = difflib.get_close_matches(key, keys(), 1, 0.6)
            advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(siblings)}"
            raise SettingError(f"unknown setting {key} ({origin}); {advice}")
        named = _section_of_tables(field.annotation)
        is_named = named is not None
        inner = named or _section_of(field.annotation)
        if inner is None and depth < len(path) - 1:
            raise SettingError(
                f"setting {'.'.join(path[: depth + 1])} takes a value and has no keys below it ({origin})"
            )
        if inner is None:
            return
        section = inner
    what = "a table of tables, by name, with" if is_named else "a table of"
    raise SettingError(f"setting {key} is {what} {', '.join(section.model_fields)}; set one of those ({origin})")


def _describe_error(error: ValidationError, given: Mapping[str, Given]) -> str:
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    key = ".".join(
        part for part, above in zip(path, ["", *path], strict=False) if part in _NAMES or above == "listeners"
    )
    origin = given[key].origin if key in given else "default"
    shown = "that" if is_secret(key) else repr(first["input"])
    return f"setting {key} ({origin}) cannot be {shown}: {describe_fault(first)}"


def _with_token_files(settings: Settings) -> Settings:
    """Return the settings with the tokens of their token files."""
    read: dict[str, EndpointSection] = {}
    for name in EndpointSettings.model_fields:
        endpoint: EndpointSection = getattr(settings.endpoints, name)
        listeners: Mapping[str, EndpointSection] = getattr(endpoint, "listeners", {})
        opened = {each: _with_token(f"{name}.{each}", one) for each, one in listeners.items()}
        with_token = _with_token(name, endpoint)
        if with_token is not endpoint or any(opened[each] is not listeners[each] for each in opened):
            read[name] = with_token.model_copy(update={"listeners": opened} if listeners else {})
    return settings.model_copy(update={"endpoints": settings.endpoints.model_copy(update=read)}) if read else settings


def _with_token(name: str, endpoint: EndpointSection) -> EndpointSection:
    """Return an endpoint, or a listener, with the token of its token file."""
    if not isinstance(endpoint, TokenSettings) or endpoint.token_file is None:
        return endpoint
    key = f"{endpoint_key(name)}.token"
    if endpoint.token is not None:
        raise SettingError(f"settings {key} and {key}_file: both are set; set one of them")
    token = SecretStr(read_token_file(f"{key}_file", endpoint.token_file))
    return endpoint.model_copy(update={"token": token})


def _has_users(data: Path) -> bool:
    """Return whether users are set up. If that is unknown, the broker itself refuses to start, with a better error."""
    try:
        return bool(json.loads((data / USERS_FILE).read_bytes())["users"])
    except FileNotFoundError:
        return (data / USERS_MARK).exists()
    except (OSError, ValueError, LookupError, TypeError):
        return True


def _require_credentials(settings: Settings) -> None:
    has_users = _has_users(settings.data)
    for name, endpoint in settings.endpoints.sections():
        if endpoint.enabled and not endpoint.address.loopback and not endpoint.secured:
            if endpoint.checks_users and has_users:
                continue
            key = endpoint_key(name)
            users = ", add a user (lading user add NAME --admin --data DIR)" if endpoint.checks_users else ""
            raise SettingError(
                f"{key}.address {endpoint.address} can be reached from other machines; set "
                f"{key}.{endpoint.remedy}{users}, or listen on 127.0.0.1"
            )


_NAMES = frozenset(name for key in keys() for name in key.split("."))
