"""The sections of a pipeline's file as typed models."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field

from ..columns.contract import did_you_mean
from ..model.errors import SettingError
from ..model.state import STATE_BY_WORD, State
from ..settings.sections import Listen
from ..transports.topic_selection import TopicSelection
from .reasons import SENTENCES
from .targets import QUARANTINE, parse_route_target, parse_target, table_of

UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def _parse_seconds(value: object) -> object:
    if isinstance(value, str):
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*", value.lower())
        if found is None or found[2] not in UNITS_S:
            raise ValueError("a time is a number of seconds, or text such as 500ms, 30s, 5m, 1h")
        return float(found[1]) * UNITS_S[found[2]]
    return value


def _parse_state(value: object) -> object:
    settable = [word for word, state in STATE_BY_WORD.items() if state is not State.AVAILABLE]
    if value not in settable:
        near = did_you_mean(str(value), settable)
        raise ValueError(f"a state that a route sets is one of {', '.join(settable)}{near}")
    return value


def _check_name(value: object) -> object:
    if not isinstance(value, str) or re.fullmatch(r"[A-Za-z][\w.-]*", value) is None:
        raise ValueError("a name begins with a letter and has letters, digits, and _ . - after it")
    if value in SENTENCES or value in ("good", QUARANTINE):
        raise ValueError("this word is taken; choose another name")
    return value


def _to_names(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _to_place(value: object) -> object:
    # TOML has times and numbers of its own
    return str(value) if isinstance(value, date) or type(value) is int else value


Place = Annotated[str | dict[str, Any], BeforeValidator(_to_place)]
"""A place in a topic, as ``parse_offsets`` reads it."""
Seconds = Annotated[float, BeforeValidator(_parse_seconds), Field(ge=0.1, le=86_400)]
Target = Annotated[str, BeforeValidator(parse_target)]
RouteTarget = Annotated[str, BeforeValidator(parse_route_target)]
CheckName = Annotated[str, BeforeValidator(_check_name)]
StateWord = Annotated[str, BeforeValidator(_parse_state)]
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
    """[source] or one of several [[source]]: a topic, or several, and their location."""

    from_: NonEmpty = Field(alias="from")
    topic: NonEmpty | None = None
    topics: tuple[NonEmpty, ...] | None = Field(default=None, min_length=1)
    """Several topics by name."""
    topic_pattern: NonEmpty | None = None
    """A regular expression that matches the whole names of topics, of later ones too."""
    starting: Place = "earliest"
    ending: Place = "latest"
    """The end of a run that does not follow."""
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

    @property
    def selection(self) -> TopicSelection:
        """The topics of the source. Raises SettingError unless it names one, several or a valid pattern."""
        given = [name for name in ("topic", "topics", "topic_pattern") if getattr(self, name) is not None]
        if len(given) > 1:
            raise SettingError(f"source has {' and '.join(given)}, which both select topics; keep one of them")
        if not given:
            raise SettingError(
                "source.topic is missing; it takes the name of a topic (topics and topic_pattern take several)"
            )
        return TopicSelection.parse(self.topics or [self.topic or ""], self.topic_pattern, "source.topic_pattern")


class Quality(PipelineFileSection):
    """[quality]: checks besides the contract, and the failure ratio at which a batch is not published."""

    verify_checksum: bool = True
    require_timestamp: bool = False
    """Whether a message whose time is outside the years 1 to 9999 fails; else its column ``timestamp`` is null."""
    max_failure_ratio: float = Field(default=0.2, ge=0, le=1)
    min_messages: int = Field(default=100, ge=1)
    """Batches with fewer messages are published whatever their ratio is: two bad of eight say nothing of the rest."""


class ExpectSection(PipelineFileSection):
    """One [[expect]]: a condition that is to be true for each message, and what happens if it is not."""

    name: CheckName
    condition: NonEmpty
    otherwise: Literal["warn", "quarantine", "fail"] = Field(alias="else")


class Step(PipelineFileSection):
    """One [[step]]: a query in Spark's SQL over the messages that passed the checks, or over the previous step."""

    sql: NonEmpty


class Good(PipelineFileSection):
    """[good]: the table or topic for all that no route takes."""

    to: Target
    columns: tuple[str, ...] | None = Field(default=None, min_length=1)
    partition_by: tuple[str, ...] = ()

    @property
    def table(self) -> str | None:
        """The target of its table; None if that is a topic."""
        return table_of(self.to)


class Route(PipelineFileSection):
    """One [[route]]: its condition, and the table, topic (or the quarantine) or state for messages that satisfy it."""

    where: NonEmpty
    name: CheckName | None = None
    to: RouteTarget | None = None
    set_state: StateWord | None = None
    columns: tuple[str, ...] | None = Field(default=None, min_length=1)
    partition_by: tuple[str, ...] = ()

    @property
    def table(self) -> str | None:
        """The target of its table; None if messages go to a topic, to the quarantine, or nowhere."""
        return table_of(self.to)


class QuarantineSection(PipelineFileSection):
    """[quarantine]: the table, and optionally the topic, for messages that fail."""

    to: Target | None = None
    topic: NonEmpty | None = None
    server: NonEmpty | None = None


class PayloadSection(PipelineFileSection):
    """[payload]: how payloads are read whose members are columns; ``registry.payload_form`` says more of each key."""

    format: Literal["json", "avro", "protobuf", "text", "schema"] = "json"
    schema_: NonEmpty | None = Field(default=None, alias="schema")
    """A file, or the schema itself."""
    schema_imports: NonEmpty | None = None
    """The files that a .proto file imports, as a JSON object of names and texts; those beside the file are found."""
    message: NonEmpty | None = None
    """The message of a .proto file that payloads are."""
    prefix: Literal["auto", "confluent", "none"] = "auto"
    registry: NonEmpty | None = None
    registry_user: NonEmpty | None = None
    registry_password_file: NonEmpty | None = None
    registry_password_env: NonEmpty | None = None
    registry_token_file: NonEmpty | None = None
    registry_token_env: NonEmpty | None = None
    registry_ca_file: NonEmpty | None = None
    registry_certificate_file: NonEmpty | None = None
    registry_key_file: NonEmpty | None = None
    registry_cache: NonEmpty | None = None
    subject_strategy: Literal["TOPIC", "RECORD", "TOPIC_RECORD"] = "TOPIC"
    """How schemas are named in the registry."""

    @property
    def settings(self) -> dict[str, str]:
        """The keys that the file has."""
        return self.model_dump(by_alias=True, exclude_unset=True, exclude_none=True)


class TableSection(PipelineFileSection):
    """[table]: upkeep of the file's tables by its runs."""

    optimize: Literal["never", "hourly", "daily", "weekly"] = "never"
    """How often small files are written as larger ones."""


class MetricsSection(PipelineFileSection):
    """[metrics]: the address that serves metrics for Prometheus while the pipeline runs."""

    address: Listen | None = None


class Document(PipelineFileSection):
    """The whole file."""

    pipeline: PipelineSection = PipelineSection()
    source: tuple[SourceSection, ...] = Field(min_length=1)
    include: Annotated[tuple[str, ...], BeforeValidator(_to_names)] = ()
    """Ready-made contracts, by name."""
    headers: dict[str, Any] = Field(default_factory=dict)
    payload: PayloadSection = PayloadSection()
    key: PayloadSection = PayloadSection()
    """How keys are read whose members are columns."""
    quality: Quality = Quality()
    expect: tuple[ExpectSection, ...] = ()
    step: tuple[Step, ...] = ()
    good: Good
    route: tuple[Route, ...] = ()
    quarantine: QuarantineSection = QuarantineSection()
    storage: dict[str, str] = Field(default_factory=dict)
    """The address of the object store of the file's tables, and references to its credentials."""
    table: TableSection = TableSection()
    metrics: MetricsSection = MetricsSection()
