"""The settings of a pipeline: a TOML file as typed models; errors name the file, the key and the nearest valid key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, ValidationError

from ..columns.contract import did_you_mean
from ..endpoint_settings import Listen
from ..model.errors import SettingError
from ..model.state import STATE_BY_WORD, State
from ..tables.files import OWN
from ..tables.formats.registry import FORMATS, split_target
from ..transports.secrets import clear_secret_sentence, expand_variables, is_clear_secret, secret_of
from .header_section import parse_headers
from .reasons import SENTENCES

DEFAULT_SERVER = "lading://127.0.0.1:7070"
SEVERAL = ("source", "expect", "step", "route")
"""Sections that may occur several times; a single one may be written as a plain table."""
QUARANTINE = "quarantine"
"""Value of a route's ``to`` that puts messages into quarantine."""
UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def _seconds(value: object) -> object:
    if isinstance(value, str):
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*", value.lower())
        if found is None or found[2] not in UNITS_S:
            raise ValueError("a time is a number of seconds, or text such as 500ms, 30s, 5m, 1h")
        return float(found[1]) * UNITS_S[found[2]]
    return value


def _table(value: object) -> object:

    if not isinstance(value, str) or not value.startswith(tuple(f"{name}:" for name in FORMATS)):
        path = value.partition(":")[2] if isinstance(value, str) and re.match(r"\w{2,}:", value) else value
    else:
        path = split_target(value)[1]
        if path.strip():
            return value
    forms = " or ".join(f"{name}:DIRECTORY" for name in FORMATS)
    raise ValueError(f"a table is {forms}, for example {next(iter(FORMATS))}:{path or './tables/flights'}")


def _state(value: object) -> object:
    settable = [word for word, state in STATE_BY_WORD.items() if state is not State.AVAILABLE]
    if value not in settable:
        near = did_you_mean(str(value), settable)
        raise ValueError(f"a state that a route sets is one of {', '.join(settable)}{near}")
    return value


def _route_target(value: object) -> object:
    return value if value == QUARANTINE else _table(value)


def _check_name(value: object) -> object:
    if not isinstance(value, str) or re.fullmatch(r"[A-Za-z][\w.-]*", value) is None:
        raise ValueError("a name begins with a letter and has letters, digits, and _ . - after it")
    if value in SENTENCES or value in ("good", QUARANTINE):
        raise ValueError("this word is taken; choose another name")
    return value


Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0.1, le=86_400)]
Table = Annotated[str, BeforeValidator(_table)]
RouteTarget = Annotated[str, BeforeValidator(_route_target)]
CheckName = Annotated[str, BeforeValidator(_check_name)]
StateWord = Annotated[str, BeforeValidator(_state)]
NonEmpty = Annotated[str, Field(min_length=1)]
Compression = Literal["snappy", "zstd", "gzip", "lz4", "none"]


class PipelineFileSection(BaseModel):
    """A table of the file; undeclared keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class PipelineSection(PipelineFileSection):
    """[pipeline]: its id, and how batches are formed."""

    id: NonEmpty | None = None
    state: NonEmpty | None = None
    trigger: Seconds = 30.0
    max_rows: int = Field(default=4_000_000, ge=1)
    """Maximum messages per batch, and so per manifest."""
    max_rows_per_task: int = Field(default=500_000, ge=1)
    file_size: ByteSize = Field(default=ByteSize(256 << 20), ge=1 << 10)
    compression: Compression = "snappy"


class SourceSection(PipelineFileSection):
    """[source] or one of several [[source]]: a topic and its location."""

    from_: NonEmpty = Field(alias="from")
    topic: NonEmpty
    starting: str | dict[str, Any] = "earliest"
    states: Literal["available", "all"] = "available"
    fail_on_data_loss: bool = True
    server: NonEmpty | None = None
    """The broker that owns a data directory, for setting states."""
    transport: dict[str, str | int | float] = Field(default_factory=dict)
    spool: NonEmpty | None = None
    """The spool directory of a queue. Default: next to the state."""
    spool_keep_s: int | None = Field(default=None, ge=1)
    """The minimum time in seconds that published messages stay in the spool. Default: a day."""
    channel: NonEmpty | None = None
    """The channel of a queue. Default: the pipeline's id."""


class Quality(PipelineFileSection):
    """[quality]: checks besides the contract, and the failure ratio at which a batch is not published."""

    verify_checksum: bool = True
    max_failure_ratio: float = Field(default=0.2, ge=0, le=1)
    min_messages: int = Field(default=1, ge=1)
    """Batches with fewer messages are always published."""


class ExpectSection(PipelineFileSection):
    """One [[expect]]: a condition that is to be true for each message, and what happens if it is not."""

    name: CheckName
    condition: NonEmpty
    otherwise: Literal["warn", "quarantine", "fail"] = Field(alias="else")


class Step(PipelineFileSection):
    """One [[step]]: a query in Spark's SQL over the messages that passed the checks, or over the previous step."""

    sql: NonEmpty


class Good(PipelineFileSection):
    """[good]: the table for all that no route takes."""

    to: Table
    columns: tuple[str, ...] | None = Field(default=None, min_length=1)
    partition_by: tuple[str, ...] = ()


class Route(PipelineFileSection):
    """One [[route]]: its condition, and the table (or the quarantine) or state for messages that satisfy it."""

    where: NonEmpty
    name: CheckName | None = None
    to: RouteTarget | None = None
    set_state: StateWord | None = None
    columns: tuple[str, ...] | None = Field(default=None, min_length=1)
    partition_by: tuple[str, ...] = ()

    @property
    def table(self) -> str | None:
        """The target of its table; None if it has none, or takes messages to the quarantine."""
        return None if self.to == QUARANTINE else self.to


class QuarantineSection(PipelineFileSection):
    """[quarantine]: the table, and optionally the topic, for messages that fail."""

    to: Table | None = None
    topic: NonEmpty | None = None
    server: NonEmpty | None = None


class MetricsSection(PipelineFileSection):
    """[metrics]: the address that serves metrics for Prometheus while the pipeline runs."""

    address: Listen | None = None


class Document(PipelineFileSection):
    """The whole file."""

    pipeline: PipelineSection = PipelineSection()
    source: tuple[SourceSection, ...] = Field(min_length=1)
    headers: dict[str, Any] = Field(default_factory=dict)
    quality: Quality = Quality()
    expect: tuple[ExpectSection, ...] = ()
    step: tuple[Step, ...] = ()
    good: Good
    route: tuple[Route, ...] = ()
    quarantine: QuarantineSection = QuarantineSection()
    metrics: MetricsSection = MetricsSection()


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
            raise SettingError(f"{name}: {_sentence(error, single)}") from None
        self.contract = parse_headers(self.document.headers, name)
        for at, route in enumerate(self.document.route):
            if route.to is None and route.set_state is None:
                raise SettingError(f"{name}: route {at + 1} does nothing; give it to = … or set_state = … or both")
            if route.columns is not None and route.table is None:
                raise SettingError(f"{name}: route {at + 1} has columns but no table; add to = …, or remove columns")
            if route.partition_by and route.table is None:
                raise SettingError(f"{name}: route {at + 1} has partition_by but no table; add to = …, or remove it")
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
        names = self.check_names
        if twice := next((one for one in names if names.count(one) > 1), None):
            raise SettingError(
                f"{name}: the name {twice!r} is given twice; name each expectation and route differently"
            )

    @classmethod
    def load(cls, file: Path) -> PipelineSettings:
        """Load ``file``. Raises SettingError if it cannot be read or is invalid."""
        try:
            document = tomllib.loads(file.read_text())
        except OSError as error:
            raise SettingError(f"cannot read the pipeline file {file}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise SettingError(f"pipeline file {file}: not valid UTF-8: {error.reason}") from None
        except tomllib.TOMLDecodeError as error:
            raise SettingError(f"pipeline file {file}: invalid TOML: {error}") from None
        return cls(document, file.absolute().parent, str(file))

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
        return self.place(self.document.good.to) if state is None else self._relative(state)

    def spool(self, source: SourceSection) -> str:
        """Return the spool directory of a queue."""
        if source.spool is not None:
            return self._relative(source.spool)
        return str(Path(self.state_directory) / OWN / "spools" / source.topic)

    @property
    def quarantine_table(self) -> str:
        """The directory of the quarantine table: as set, else next to the good table."""
        to = self.document.quarantine.to
        return f"{self.place(self.document.good.to).rstrip('/')}_quarantine" if to is None else self.place(to)

    def place(self, to: str) -> str:
        """Return the directory of a table's target, made absolute; URLs of object stores stay unchanged."""
        return self._relative(split_target(to)[1].strip())

    @property
    def forms(self) -> dict[str, str]:
        """The format of every table that a destination names, by its place."""
        targets = (*(route.table for route in self.document.route), self.document.good.to)
        return {self.place(to): split_target(to)[0] for to in targets if to is not None}

    def url(self, from_: str) -> str:
        """Return a source's URL or absolute directory."""
        return self._relative(from_)

    def server(self, source: SourceSection) -> str:
        """Return the broker that owns a source: where states are set, and by default copies go."""
        if source.server is not None:
            return source.server
        return source.from_ if "://" in source.from_ and not source.from_.startswith("file:") else DEFAULT_SERVER

    @property
    def quarantine_server(self) -> str:
        """The server of the quarantine topic."""
        return self.document.quarantine.server or self.server(self.document.source[0])

    def access(self, server: str) -> dict[str, Any]:
        """Return the transport options of a server, such as credentials: those of a source on it."""
        sources = self.document.source
        return next((self.transport(one) for one in sources if self.server(one) == server == one.from_), {})

    def transport(self, source: SourceSection) -> dict[str, Any]:
        """Return how a source is reached, with variables of the environment in place.

        Raises SettingError for a variable that is not set.
        """
        return expand_variables(source.transport, f"{self.name}: source.transport")

    @property
    def clear_secrets(self) -> Iterator[str]:
        """A warning for each secret that stands in the file in clear text."""
        for source in self.document.source:
            for name, value in source.transport.items():
                if is_clear_secret(name, value):
                    yield clear_secret_sentence(f"{self.name}: source.transport", name)

    def _relative(self, text: str) -> str:
        return text if "://" in text else str((self.base / text).absolute())


def _sentence(error: ValidationError, single: Collection[str]) -> str:
    """Return the first error in words, unknown keys first: a missing key is most often a misspelt one."""
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    place = list(first["loc"])
    key = "".join(_steps(place, single))
    if first["type"] == "extra_forbidden":
        known = _known(place[:-1])
        near = get_close_matches(str(place[-1]), known, 1, 0.6)
        advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        return f"unknown key {key}; {advice}"
    if first["type"] == "missing":
        return f"{key} is missing{_EXAMPLES.get(str(place[-1]), '')}"
    reason = str(first.get("ctx", {}).get("error") or first["msg"])
    hidden = any(secret_of(str(part)) is not None for part in place)
    shown = "what it is" if hidden else repr(first["input"])
    return f"{key} cannot be {shown}: {reason[:1].lower()}{reason[1:]}"


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


def _steps(place: list[Any], single: Collection[str]) -> Iterator[str]:
    for at, part in enumerate(place):
        if isinstance(part, int):
            if not (at == 1 and place[0] in single):
                yield f"[{part + 1}]"
        elif part not in ("str", "dict[str,any]"):
            yield f".{part}" if at else str(part)


def _known(place: list[Any]) -> list[str]:
    model: Any = Document
    for part in place:
        if isinstance(part, str):
            annotation = next(
                field.annotation for name, field in model.model_fields.items() if (field.alias or name) == part
            )
            model = next((one for one in get_args(annotation) if isinstance(one, type)), annotation)
    return [field.alias or name for name, field in model.model_fields.items()]
