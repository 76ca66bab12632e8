"""The settings of a pipeline: a TOML file as typed models; errors name the file, the key and the nearest valid key."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from ..columns.contract import Projection
from ..model.errors import SettingError
from ..model.names import DEFAULT_STREAM
from ..model.printable import join_for_shell
from ..model.value_faults import describe_fault
from ..registry.payload_form import KEY_PREFIX, inline_schema, parse_payload_form
from ..settings.toml_text import read_toml
from ..tables.formats.registry import split_target
from ..tables.storage.files import OWN, has_scheme
from ..tables.storage.storage import StorageReferences
from ..tables.topic_tables import has_topic, parent_of_topic_tables
from ..transports.secrets import clear_secret_sentence, expand_variables, is_clear_secret, secret_of
from ..transports.topic_address import TopicAddress
from .header_section import parse_headers
from .ready_contracts import include_contracts
from .sections import Document, Good, PayloadSection, Route, SourceSection
from .targets import QUARANTINE, table_of, topic_of

DEFAULT_SERVER = "lading://127.0.0.1:7070"
SEVERAL = ("source", "expect", "step", "route")
"""Sections that may occur several times; a single one may be written as a plain table."""


class PipelineSettings:
    """The settings of a pipeline; relative paths are relative to the directory ``base``.

    A SettingError names the file, the key and the nearest valid key, if there is one.
    """

    def __init__(self, document: Mapping[str, Any], base: Path, name: str) -> None:
        self.raw = dict(document)
        self.base = base
        self.name = name
        single = {key: [table] for key in SEVERAL if isinstance(table := self.raw.get(key), dict)}
        try:
            self.document = Document.model_validate({**self.raw, **single})
        except ValidationError as error:
            raise SettingError(f"{name}: {_describe_error(error, single)}") from None
        for source in self.document.source:
            try:
                _ = source.selection
            except SettingError as error:
                raise SettingError(f"{name}: {error}") from None
        headers = include_contracts(self.document.headers, self.document.include, name)
        self.contract = _parse_contract(headers, self.document.payload, self.document.key, base, name)
        self.storage = StorageReferences.parse(self.document.storage, base, name)
        for key, section in self.destinations:
            self._require_whole(key, section)
        for at, route in enumerate(self.document.route):
            if route.to is None and route.set_state is None:
                raise SettingError(f"{name}: route {at + 1} does nothing; give it to = … or set_state = … or both")
            if route.set_state is not None and self.document.step:
                raise SettingError(
                    f"{name}: route {at + 1} sets states, but what it takes are rows that the steps made, and those "
                    "are no messages; remove set_state, or do it in a pipeline without steps"
                )
            if route.to == QUARANTINE and self.document.step:
                raise SettingError(
                    f"{name}: route {at + 1} takes rows that the steps made to quarantine, which holds messages; use "
                    "an [[expect]], which looks at messages before the steps, or a pipeline without steps"
                )
        if self.document.good.table is None and self.document.pipeline.state is None:
            raise SettingError(
                f"{name}: good.to is a topic, which has no directory for the state of the pipeline; name one, for "
                f'example state = "./state" in [pipeline]'
            )
        if topic_of(self.document.quarantine.to) and (
            self.document.quarantine.topic or self.document.quarantine.server
        ):
            raise SettingError(
                f"{name}: quarantine.to is a topic, and quarantine.topic or quarantine.server names another one; keep "
                "one of them"
            )
        names = self.check_names
        if twice := next((one for one in names if names.count(one) > 1), None):
            raise SettingError(
                f"{name}: the name {twice!r} is given twice; name each expectation and route differently"
            )

    @classmethod
    def load(cls, file: Path) -> PipelineSettings:
        """Load ``file``. Raises SettingError if it cannot be read or is invalid."""
        return cls(_read_document(file), file.absolute().parent, str(file))

    def with_range(self, starting: str | None, ending: str | None) -> PipelineSettings:
        """Return the same settings, in which every source begins and ends there if that is not None."""
        given = {name: text for name, text in (("starting", starting), ("ending", ending)) if text is not None}
        if not given:
            return self
        sources = self.raw["source"]
        sources = [sources] if isinstance(sources, dict) else sources
        return PipelineSettings(
            {**self.raw, "source": [{**source, **given} for source in sources]}, self.base, self.name
        )

    def _require_whole(self, key: str, section: Good | Route) -> None:
        """Raise SettingError for keys that say nothing without a table, and for a topic that no step can send to."""
        topic = topic_of(section.to)
        instead = f"{section.to} takes whole messages" if topic else "there is no table"
        if section.columns is not None and section.table is None:
            raise SettingError(f"{self.name}: {key} has columns but no table: {instead}; add to = …, or remove columns")
        if section.partition_by and section.table is None:
            raise SettingError(f"{self.name}: {key} has partition_by but no table: {instead}; add to = …, or remove it")
        if topic is not None and self.document.step:
            raise SettingError(
                f"{self.name}: {key} takes rows that the steps made to {section.to}, which takes messages; name a "
                "table, or use a pipeline without steps"
            )

    @property
    def destinations(self) -> list[tuple[str, Good | Route]]:
        """Routes and good, in the order in which they take messages, by their name for people."""
        routes: list[tuple[str, Good | Route]] = [
            (f"route {at + 1}", one) for at, one in enumerate(self.document.route)
        ]
        return [*routes, ("good", self.document.good)]

    @property
    def copies(self) -> TopicAddress | None:
        """The topic for copies of quarantined messages, or None."""
        section = self.document.quarantine
        if (topic := topic_of(section.to)) is not None:
            return topic
        return None if section.topic is None else TopicAddress(self.quarantine_server, section.topic)

    @property
    def topics(self) -> dict[str, TopicAddress]:
        """Every topic that messages are sent to, by the key that names it."""
        copies = self.copies
        key = "quarantine.topic" if self.document.quarantine.topic else "quarantine.to"
        found = {name: topic for name, one in self.destinations if (topic := topic_of(one.to)) is not None}
        return found if copies is None else {**found, key: copies}

    @property
    def id(self) -> str:
        """The pipeline's id: as set, else the file's name without its suffix."""
        return self.document.pipeline.id or Path(self.name).stem

    @property
    def check_names(self) -> list[str]:
        """The names of expectations and routes, which are reasons of quarantined messages."""
        routes = [one.name for one in self.document.route if one.name is not None]
        return [*(one.name for one in self.document.expect), *routes]

    @property
    def state_directory(self) -> str:
        """The directory of manifests, checkpoint and ledger: as set, else next to the good table."""
        state = self.document.pipeline.state
        return _directory_around(self.place(self.document.good.to)) if state is None else self._resolve_path(state)

    def spool(self, source: SourceSection) -> str:
        """Return the spool directory of a queue."""
        if source.spool is not None:
            return self._resolve_path(source.spool)
        return str(Path(self.state_directory) / OWN / "spools" / (source.topic or ""))

    @property
    def quarantine_table(self) -> str:
        """The directory of the quarantine table: as set, else next to the good table, or else to the state."""
        to, good = table_of(self.document.quarantine.to), self.document.good.table
        if to is not None:
            return self.place(to)
        return (
            f"{(self.state_directory if good is None else _directory_around(self.place(good))).rstrip('/')}_quarantine"
        )

    def place(self, to: str) -> str:
        """Return the directory of a table's target, made absolute; URLs of object stores stay unchanged."""
        return self._resolve_path(split_target(to)[1].strip())

    @property
    def forms(self) -> dict[str, str]:
        """The format of every table that a destination names, by its place."""
        targets = (one.table for _, one in self.destinations)
        return {self.place(to): split_target(to)[0] for to in targets if to is not None}

    def url(self, from_: str) -> str:
        """Return a source's URL or absolute directory."""
        return self._resolve_path(from_)

    def server(self, source: SourceSection) -> str:
        """Return the broker that owns a source: it keeps the states, and by default gets the copies."""
        if source.server is not None:
            return source.server
        return source.from_ if "://" in source.from_ and not source.from_.startswith("file:") else DEFAULT_SERVER

    @property
    def quarantine_server(self) -> str:
        """The server of the quarantine topic."""
        return self.document.quarantine.server or self.server(self.document.source[0])

    def find_source(self, topic: str) -> SourceSection | None:
        """Return the source of a topic, by its flat name; None if the file has no such source any more."""
        plain = topic.removeprefix(f"{DEFAULT_STREAM}.")
        sources = [(source, source.selection) for source in self.document.source]
        named = (source for source, selection in sources if topic in selection.names or plain in selection.names)
        matched = (source for source, selection in sources if selection.matches(topic))
        return next(named, None) or next(matched, None)

    def command(self, *more: str) -> str:
        """Return the command that runs this pipeline."""
        return join_for_shell(["lading", "pipeline", "run", self.name, *more])

    def access(self, server: str) -> dict[str, Any]:
        """Return the transport options of a server, such as credentials: those of a source on it."""
        sources = self.document.source
        return next((self.transport(one) for one in sources if self.server(one) == server == one.from_), {})

    def transport(self, source: SourceSection) -> dict[str, Any]:
        """Return how a source is reached, with variables of the environment in place.

        Raises SettingError for a variable that is not set.
        """
        return self.expand_transport(source.transport)

    def expand_transport(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a source's transport with variables of the environment of this process in place."""
        return expand_variables(options, f"{self.name}: source.transport")

    @property
    def clear_secrets(self) -> Iterator[str]:
        """A warning for each secret that stands in the file in clear text."""
        for source in self.document.source:
            for name, value in source.transport.items():
                if is_clear_secret(name, value):
                    yield clear_secret_sentence(f"{self.name}: source.transport", name)

    def _resolve_path(self, text: str) -> str:
        return text if has_scheme(text) else str((self.base / text).absolute())


def _directory_around(place: str) -> str:
    """Return the directory of a table, or the one around the tables of all topics."""
    return parent_of_topic_tables(place) if has_topic(place) else place


def load_contract(file: Path) -> Projection:
    """Return the contract in a pipeline's file, or in one with ``[headers]`` or ``include`` alone.

    Raises SettingError as ``PipelineSettings.load`` does.
    """
    document = _read_document(file)
    alone = document.keys() <= {"headers", "payload", "key", "include"} and document.keys() & {"headers", "include"}
    own = document.get("headers", {})
    if alone and isinstance(own, dict):
        included = document.get("include", [])
        names = [included] if isinstance(included, str) else included
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise SettingError(f"{file}: include takes the name of a contract, or a list of names; correct it")
        try:
            payload, key = (PayloadSection.model_validate(document.get(name, {})) for name in ("payload", "key"))
        except ValidationError as error:
            raise SettingError(f"{file}: {_describe_error(error, ())}") from None
        headers = include_contracts(own, names, str(file))
        return _parse_contract(headers, payload, key, file.absolute().parent, str(file))
    return PipelineSettings(document, file.absolute().parent, str(file)).contract


def _parse_contract(
    headers: Mapping[str, Any], payload: PayloadSection, key: PayloadSection, base: Path, name: str
) -> Projection:
    of_keys = {f"{KEY_PREFIX}{word}": value for word, value in key.settings.items()}
    try:
        form = parse_payload_form(payload.settings | of_keys, base)
    except SettingError as error:
        raise SettingError(f"{name}: {error}") from None
    return parse_headers(headers, name, form)


def _read_document(file: Path) -> dict[str, Any]:
    """Return the content of a file, with the schema of payloads in it, which tasks elsewhere need too."""
    document = read_toml(file, "pipeline file")
    for name in ("payload", "key"):
        section = document.get(name)
        if isinstance(section, dict) and isinstance(section.get("schema"), str):
            document[name] = inline_schema(section, file.absolute().parent)
    return document


def _describe_error(error: ValidationError, single: Collection[str]) -> str:
    """Return the first error in words, unknown keys first: a missing key is most often a misspelt one."""
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    place = list(first["loc"])
    key = "".join(_write_key(place, single))
    if first["type"] == "extra_forbidden":
        known = _list_known_keys(place[:-1])
        near = get_close_matches(str(place[-1]), known, 1, 0.6)
        advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        return f"unknown key {key}; {advice}"
    if first["type"] == "missing":
        return f"{key} is missing{_EXAMPLES.get(str(place[-1]), '')}"
    hidden = any(secret_of(str(part)) is not None for part in place)
    shown = "what it is" if hidden else repr(first["input"])
    return f"{key} cannot be {shown}: {describe_fault(first)}"


_EXAMPLES = {
    "source": '; for example [source] with from = "./data" and topic = "flights"',
    "from": '; it takes a URL such as lading://127.0.0.1:7070, or a data directory',
    "topic": "; it takes the name of a topic",
    "good": '; for example [good] with to = "parquet:./tables/flights"',
    "to": '; for example to = "parquet:./tables/flights"',
    "name": '; for example name = "plausible-delay"',
    "condition": "; it takes a filter, for example condition = \"delay < 3000\"",
    "else": '; it takes "warn", "quarantine" or "fail"',
    "where": "; it takes a filter, for example where = \"delay > 60\"",
    "sql": "; it takes a query, for example sql = \"SELECT *, delay / 60 AS hours FROM messages\"",
}  # fmt: skip


def _write_key(place: list[Any], single: Collection[str]) -> Iterator[str]:
    for at, part in enumerate(place):
        if isinstance(part, int):
            if not (at == 1 and place[0] in single):
                yield f"[{part + 1}]"
        elif part not in ("str", "dict[str,any]"):
            yield f".{part}" if at else str(part)


def _list_known_keys(place: list[Any]) -> list[str]:
    model: Any = Document
    for part in place:
        if isinstance(part, str):
            annotation = next(
                field.annotation for name, field in model.model_fields.items() if (field.alias or name) == part
            )
            model = next((one for one in get_args(annotation) if isinstance(one, type)), annotation)
    return [field.alias or name for name, field in model.model_fields.items()]
