"""A file of brokers for the console: TOML with a table for each broker or cluster that its switcher offers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import parse_qsl, quote

from pydantic import Field, ValidationError

from ..model.errors import LocalError, SettingError
from ..model.value_faults import describe_fault
from ..settings.sections import Section
from ..settings.toml_text import read_toml
from ..transports.open import is_queue, option_names, place_files, without_options
from ..transports.secrets import (
    PREFIX,
    VARIABLE,
    add_environment,
    clear_secret_sentence,
    expand_variables,
    is_clear_secret,
    secret_of,
)
from .masks import NO_MASKS, Masks, MaskSection
from .mirror_services import require_service_url
from .settings import ConsoleSettings, ListedBroker

KIND: Final = "brokers file"
"""Name of such a file in errors."""
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names of brokers: they are a part of addresses, cookies and directories."""
BROKERS_MAX: Final = 200
_VARIABLE: Final = re.compile(r"\s*\$\{([^{}]*)\}\s*")
_EXAMPLE: Final = 'for example [broker.production] with from = "lading://127.0.0.1:7070"'

Text = Annotated[str, Field(min_length=1)]


class BrokerSection(Section):
    """[broker.NAME]: one broker or cluster, with the keys that the options of ``lading console`` have."""

    from_: Text = Field(alias="from")
    """A ``lading://``, ``iggy://`` or ``kafka://`` URL, or a data directory."""
    read_only: bool = False
    """Whether everything is off that changes something there."""
    transport: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Options of its connections, such as ``username`` and ``password_file``."""
    registry: Text | None = None
    tables: Text | None = None
    pipelines: tuple[Path, ...] = ()
    mirrors: tuple[Path, ...] = ()
    mirror_services: tuple[Text, ...] = ()


class BrokersDocument(Section):
    """The whole file."""

    broker: dict[str, BrokerSection] = Field(min_length=1, max_length=BROKERS_MAX)
    mask: tuple[MaskSection, ...] = ()


class NamedBroker(NamedTuple):
    """One broker of a file: its URL with the options of its connections, and its table."""

    name: str
    url: str
    section: BrokerSection
    base: Path
    """The directory of the file, to which its paths are relative."""
    masks: Masks = NO_MASKS

    def make_settings(self, shared: ConsoleSettings, listed: tuple[ListedBroker, ...]) -> ConsoleSettings:
        """Return the settings of its pages; ``shared`` has those that hold for all brokers of the file."""
        section = self.section
        return ConsoleSettings(
            self.url, shared.address, shared.is_read_only or section.read_only,
            tuple(self.base / one for one in section.pipelines), tuple(self.base / one for one in section.mirrors),
            # topics of one name at two brokers are redriven apart
            shared.state / self.name, section.registry, section.tables,
            tuple(map(require_service_url, section.mirror_services)),
            broker=self.name, brokers=listed, shows_own_mirrors=False, masks=self.masks,
        )  # fmt: skip


def list_brokers(brokers: Sequence[NamedBroker], *, is_read_only: bool) -> tuple[ListedBroker, ...]:
    """Return the brokers as the switcher shows them; ``is_read_only`` holds for all."""
    return tuple(
        ListedBroker(one.name, without_options(one.url), is_read_only or one.section.read_only) for one in brokers
    )


def load_brokers(file: Path) -> list[NamedBroker]:
    """Return the brokers of ``file``. Raises SettingError, which names the file, the broker, the key and the remedy."""
    try:
        document = BrokersDocument.model_validate(read_toml(file, KIND))
    except ValidationError as error:
        raise SettingError(f"{KIND} {file}: {_describe_invalid(error)}") from None
    base = file.absolute().parent
    lower: dict[str, str] = {}
    for name in document.broker:
        if NAME.fullmatch(name) is None:
            raise SettingError(
                f"{KIND} {file}: broker.{name}: a name begins with a letter or digit and has up to 63 letters, digits, "
                ". _ - after it; rename it"
            )
        if (other := lower.setdefault(name.lower(), name)) != name:
            raise SettingError(f"{KIND} {file}: broker.{other} and broker.{name} differ by case alone; rename one")
    for mask in document.mask:
        if unknown := next((one for one in mask.brokers if one not in document.broker), None):
            raise SettingError(
                f"{KIND} {file}: mask.brokers has {unknown!r}, which is not a broker of this file; write one of "
                f"{', '.join(document.broker)}"
            )
    named = [_name_broker(f"{KIND} {file}: broker.{name}", base, name, one) for name, one in document.broker.items()]
    if len(named) > 1:
        for one in named:
            _require_own_secrets(file, one)
    return [
        one._replace(masks=Masks(tuple(mask for mask in document.mask if one.name in (mask.brokers or (one.name,)))))
        for one in named
    ]


def _name_broker(where: str, base: Path, name: str, section: BrokerSection) -> NamedBroker:
    try:
        if is_queue(section.from_):
            raise SettingError(
                f"{section.from_} is a queue: reading consumes its messages; name a broker (lading://host:port), a "
                "Kafka cluster, an Iggy server or a data directory"
            )
        for address in section.mirror_services:
            require_service_url(address)
        url = _add_options(section.from_, section.transport, f"{where}.transport")
    except LocalError as error:
        text = str(error)
        raise SettingError(text if text.startswith(where) else f"{where}: {text}") from None
    return NamedBroker(name, place_files(url, base), section, base)


def _require_own_secrets(file: Path, broker: NamedBroker) -> None:
    """Raise SettingError if a secret in the environment is the default of this broker: it is meant for one alone, and
    each of them would be sent it.
    """
    given = dict(parse_qsl(broker.url.partition("?")[2], keep_blank_values=True))
    added = add_environment(given, option_names(without_options(broker.url))).keys() - given.keys()
    for name in sorted(added):
        if (secret := secret_of(name)) is not None:
            raise SettingError(
                f"{KIND} {file}: {PREFIX}{name.upper()} is set, and broker.{broker.name} would be sent it like all "
                f"that name no {secret}; unset it, and name the {secret} in the table of its broker, for example "
                f'transport = {{ {secret}_env = "MY_{secret.upper()}" }}'
            )


def _add_options(url: str, options: Mapping[str, Any], where: str) -> str:
    """Return the URL with these options after ``?``. Raises SettingError for unknown ones and for secrets."""
    known = option_names(without_options(url))
    words = []
    for name, value in options.items():
        if name not in known:
            near = get_close_matches(name, known, 1, 0.5)
            there = f"there are {', '.join(known)}" if known else "a directory takes none"
            raise SettingError(f"{where} has no option {name!r}; {f'did you mean {near[0]}?' if near else there}")
        if is_clear_secret(name, value):
            raise SettingError(clear_secret_sentence(where, name))
        variable = _VARIABLE.fullmatch(value) if isinstance(value, str) else None
        if variable is not None and f"{name}{VARIABLE}" in known:
            name, value = f"{name}{VARIABLE}", variable[1]
        else:
            value = expand_variables({name: value}, where)[name] if not name.endswith(VARIABLE) else value
        words.append(f"{name}={quote(str(value).lower() if isinstance(value, bool) else str(value))}")
    if not words:
        return url
    return f"{url}{'&' if '?' in url else '?'}{'&'.join(words)}"


def _describe_invalid(error: ValidationError) -> str:
    """Return the first error in words, unknown keys first: a missing key is most often a misspelt one."""
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    place = [str(part) for part in first["loc"]]
    key = ".".join(place)
    if first["type"] == "extra_forbidden":
        section: type[Section] = BrokersDocument
        if len(place) == 3:
            section = MaskSection if place[0] == "mask" else BrokerSection
        known = sorted(field.alias or name for name, field in section.model_fields.items())
        near = get_close_matches(place[-1], known, 1, 0.6)
        return f"unknown key {key}; " + (f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}")
    if first["type"] == "missing":
        return f"{key} is missing; write {_EXAMPLE}"
    if first["type"] in ("too_short", "model_type", "dict_type", "model_attributes_type"):
        return f"{key} is not a table for each broker; write {_EXAMPLE}"
    if first["type"] == "value_error":
        return f"{key}: {describe_fault(first)}"
    return f"{key} cannot be {first['input']!r}: {describe_fault(first)}"
