"""A file of mirrors for ``lading mirror run``: TOML with a table for each mirror, and one for the service."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, ValidationError

from ..model.address import Address
from ..model.errors import SettingError
from ..model.value_faults import describe_fault
from ..settings.sections import Listen, Section
from ..settings.toml_text import read_toml
from ..transports.secrets import clear_secret_sentence, expand_variables, is_clear_secret
from .settings import MirrorSettings

KIND: Final = "mirrors file"
"""Name of such a file in errors."""
DEFAULT_ADDRESS: Final = Address("127.0.0.1", 9465)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXAMPLE: Final = 'for example [mirror.to-kafka] with source = "lading://127.0.0.1:7070" and target = "kafka://a:9092"'
_EXAMPLES: Final = {
    "source": '; it takes a URL such as kafka://127.0.0.1:9092, or a data directory',
    "target": "; it takes a URL such as lading://127.0.0.1:7070",
    "mirror": f"; {_EXAMPLE}",
}  # fmt: skip

Text = Annotated[str, Field(min_length=1)]


class ServiceSection(Section):
    """[service]: what all mirrors of the file share."""

    address: Listen = DEFAULT_ADDRESS
    """The address at which /metrics and /health are served; port 0 takes a free one."""
    state: Text | None = None
    """Directory of the states of all mirrors, one for each name. Default: ~/.local/state/lading/mirrors."""


class MirrorSection(Section):
    """[mirror.NAME]: one mirror, with the keys that the options of ``lading mirror`` have."""

    source: Text
    target: Text
    topics: tuple[Text, ...] = ()
    exclude: tuple[Text, ...] = ()
    rename: dict[str, Text] = Field(default_factory=dict)
    carrier: Literal["on", "off"] = "on"
    states: Literal["available", "all"] = "available"
    two_way: bool = False
    source_name: Text | None = None
    target_name: Text | None = None
    channel: Text = "mirror"
    on_refused: Literal["stop", "skip"] = "stop"
    on_loss: Literal["fail", "skip"] = "fail"
    start: Literal["earliest", "latest"] = "earliest"
    state: Text | None = None
    source_transport: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Options of the source's connection, such as ``username`` and ``password_env``."""
    target_transport: dict[str, str | int | float | bool] = Field(default_factory=dict)


class MirrorsDocument(Section):
    """The whole file."""

    service: ServiceSection = ServiceSection()
    mirror: dict[str, MirrorSection] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class NamedMirror:
    """One mirror of a file, with the options of its connections in place."""

    name: str
    settings: MirrorSettings
    source_options: dict[str, Any]
    target_options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class MirrorsFile:
    """Content of a file of mirrors: the address of its metrics, its mirrors, and warnings about secrets in it."""

    address: Address
    mirrors: list[NamedMirror]
    warnings: list[str]


def load_mirrors(file: Path) -> MirrorsFile:
    """Return the mirrors of ``file``. Raises SettingError, which names the file, the mirror, the key and the remedy."""
    try:
        document = MirrorsDocument.model_validate(read_toml(file, KIND))
    except ValidationError as error:
        raise SettingError(f"{KIND} {file}: {_describe_invalid(error)}") from None
    base = file.absolute().parent
    mirrors = [_name_mirror(file, base, document.service, name, one) for name, one in document.mirror.items()]
    _require_states_apart(file, mirrors)
    _require_no_loop(file, mirrors)
    return MirrorsFile(document.service.address, mirrors, list(_list_clear_secrets(file, document.mirror)))


def _name_mirror(file: Path, base: Path, service: ServiceSection, name: str, section: MirrorSection) -> NamedMirror:
    where = f"mirrors file {file}: mirror.{name}"
    if _NAME.fullmatch(name) is None:
        raise SettingError(f"{where}: a name begins with a letter or digit and has letters, digits, . _ - after it; "
                           "rename it")  # fmt: skip
    if "://" not in section.target:
        raise SettingError(
            f"{where}.target cannot be {section.target!r}: it is not a URL; write one such as lading://127.0.0.1:7070"
        )
    states = _default_states() if service.state is None else base / service.state
    settings = MirrorSettings(
        _place_source(base, section.source), section.target, section.topics, section.exclude, section.rename,
        carrier=section.carrier, states=section.states, follow=True, two_way=section.two_way,
        source_name=section.source_name, target_name=section.target_name, channel=section.channel,
        on_refused=section.on_refused, on_loss=section.on_loss, start=section.start,
        state=states / name if section.state is None else base / section.state,
    )  # fmt: skip
    try:
        settings.check()
    except SettingError as error:
        raise SettingError(f"{where}: {error}") from None
    return NamedMirror(
        name, settings, expand_variables(section.source_transport, f"{where}.source_transport"),
        expand_variables(section.target_transport, f"{where}.target_transport"),
    )  # fmt: skip


def _place_source(base: Path, source: str) -> str:
    return source if "://" in source else str(base / source)


def _default_states() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "lading" / "mirrors"


def _require_states_apart(file: Path, mirrors: list[NamedMirror]) -> None:
    owners: dict[Path, str] = {}
    for one in mirrors:
        other = owners.setdefault(one.settings.state_directory, one.name)
        if other != one.name:
            raise SettingError(
                f"mirrors file {file}: mirror.{other} and mirror.{one.name} have the same state, "
                f"{one.settings.state_directory}; give each its own"
            )


def _require_no_loop(file: Path, mirrors: list[NamedMirror]) -> None:
    pairs = {(one.settings.source_mark, one.settings.target_mark): one for one in mirrors}
    for (source, target), one in pairs.items():
        back = pairs.get((target, source))
        if back is not None and source != target and not (one.settings.two_way and back.settings.two_way):
            raise SettingError(
                f"mirrors file {file}: mirror.{one.name} and mirror.{back.name} copy the same systems in opposite "
                "directions, so that messages would go round and round; set two_way = true for both"
            )


def _list_clear_secrets(file: Path, mirrors: Mapping[str, MirrorSection]) -> Iterator[str]:
    for name, section in mirrors.items():
        for key, options in (("source", section.source_transport), ("target", section.target_transport)):
            for option, value in options.items():
                if is_clear_secret(option, value):
                    yield clear_secret_sentence(f"mirrors file {file}: mirror.{name}.{key}_transport", option)


def _describe_invalid(error: ValidationError) -> str:
    """Return the first error in words, unknown keys first: a missing key is most often a misspelt one."""
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    place = [str(part) for part in first["loc"]]
    key = ".".join(place)
    if first["type"] == "extra_forbidden":
        known = sorted(_list_known_keys(place[:-1]))
        near = get_close_matches(place[-1], known, 1, 0.6)
        advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        return f"unknown key {key}; {advice}"
    if first["type"] == "missing":
        return f"{key} is missing{_EXAMPLES.get(place[-1], '')}"
    if "transport" in key:
        return f"{key}: {describe_fault(first)}; write it as text in quotes"
    return f"{key} cannot be {first['input']!r}: {describe_fault(first)}"


def _list_known_keys(place: list[str]) -> list[str]:
    sections: dict[str, type[BaseModel]] = {"": MirrorsDocument, "service": ServiceSection, "mirror": MirrorSection}
    return list(sections[place[0] if place else ""].model_fields)
