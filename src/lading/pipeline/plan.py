"""The plan of a pipeline: destinations with their filters, tables with their columns, checked together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from ..columns.contract import FIELD_TYPES, Projection, type_word
from ..filter.filter import Filter
from ..model.batch import FIELDS
from ..model.errors import SettingError
from ..model.protocol import MessageBound
from ..model.state import STATE_BY_WORD, State
from ..tables.formats.partitions import Partitions
from ..tables.scan.schema import table_schema
from ..tables.storage.files import local_directory, table_location
from ..tables.storage.object_path import TablePath
from ..tables.topic_tables import has_topic, parent_of_topic_tables, table_of_topic
from ..transports.topic_address import TopicAddress
from .ready_contracts import CLOUDEVENTS, CONTENT_TYPE
from .reasons import BREACHES, Failure, expectation_counter
from .rows import TIMESTAMP_US
from .sections import Good, Quality, Route
from .settings import PipelineSettings
from .settings_problems import list_tables, parse_condition, problems
from .steps import default_columns, select_step_columns
from .targets import QUARANTINE, topic_of

QUARANTINE_FIELDS = ("stream", "topic", "partition", *FIELDS)
"""The original message, bytes and headers."""
_VERDICT: list[pa.Field[Any]] = [
    pa.field("reason", pa.string()),
    pa.field("header", pa.string()),
    pa.field("detail", pa.string()),
    pa.field("replays", pa.int32()),
    pa.field("quarantined_at", pa.timestamp("us", tz="UTC")),
]
VERDICT = pa.schema(_VERDICT)
"""The columns that quarantine adds to a message: why it failed, and how often it was redriven before."""


def make_quarantine_schema() -> pa.Schema:
    """Return the columns of the quarantine table."""
    fields = table_schema(Projection(QUARANTINE_FIELDS))
    return pa.schema([*VERDICT, *fields, pa.field(TIMESTAMP_US, pa.int64())])


@dataclass(frozen=True)
class TablePlan:
    """One table: its directory and columns."""

    path: TablePath
    projection: Projection

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the table, with the types of Spark."""
        return table_schema(self.projection)

    @property
    def repeating(self) -> tuple[str, ...]:
        """The columns that are dictionary-encoded, because their values repeat."""
        return tuple(column.name for column in self.projection.typed)


@dataclass(frozen=True)
class Destination:
    """Destination of messages: a route, good, or SQL steps.

    A ``filter`` of None selects all that remain; ``counter`` is the destination's name among the counts of a manifest.
    """

    name: str
    filter: Filter | None
    table: TablePlan | None
    state: State | None = None
    counter: Literal["good", "routed", "passed"] = "good"
    failure: int | None = None
    """The failure of its messages, if it takes them to quarantine."""
    topic: TopicAddress | None = None
    refused: int = -1
    """The failure of messages that its topic cannot hold."""
    too_large: int = -1
    """The failure of messages above the bound of its topic, if that has one."""


@dataclass(frozen=True)
class Expectation:
    """A condition that is to be true for every message that passed the contract, and what happens if it is not."""

    name: str
    filter: Filter
    otherwise: Literal["warn", "quarantine", "fail"]
    failure: int | None = None
    """The failure of messages that it puts into quarantine."""

    @property
    def counter(self) -> str:
        """The expectation's name among the counts of a manifest."""
        return expectation_counter(self.name)


@dataclass(frozen=True)
class StepDestination:
    """Destination of rows of SQL steps: a route with its condition in Spark's SQL, or good."""

    name: str
    where: str | None
    path: TablePath
    schema: pa.Schema

    @property
    def counter(self) -> str:
        """The destination's name among the counts of a manifest."""
        return "good" if self.where is None else "routed"


@dataclass(frozen=True)
class Plan:
    """A pipeline, ready to classify messages.

    With SQL steps the steps are the only destination, and ``results`` are the destinations of the rows they return.
    """

    contract: Projection
    destinations: tuple[Destination, ...]
    quarantine: TablePath
    failures: tuple[Failure, ...]
    verify_checksum: bool
    require_timestamp: bool = False
    step_schema: pa.Schema | None = None
    """The columns that the steps return."""
    results: tuple[StepDestination, ...] = ()
    forms: Mapping[TablePath, str] = field(default_factory=dict)
    """The format of every table that a destination names."""
    expectations: tuple[Expectation, ...] = ()
    has_events: bool = False
    """Whether messages may be CloudEvents in structured mode."""
    partitions: Mapping[TablePath, Partitions] = field(default_factory=dict)
    """How tables are divided that are."""

    @classmethod
    def of(
        cls, settings: PipelineSettings, made: pa.Schema | None = None, bounds: Mapping[str, MessageBound] | None = None
    ) -> Plan:
        """Return the plan of these settings; ``made`` are the columns that the SQL steps return, if there are steps.

        ``bounds`` is what topics take at most, by URL, as far as that is known.
        From then on this process reaches its tables as ``[storage]`` says. Raises SettingError with the first problem
        found.
        """
        for problem in problems(settings):
            raise SettingError(problem)
        plan = _plan(settings, made, bounds or {})
        # in every process that has a plan: the driver, and each task
        places = [parent_of_topic_tables(str(place)) if has_topic(place) else place for place in plan.forms]
        settings.storage.bind([*places, plan.quarantine])
        return replace(plan, partitions=_plan_partitions(settings, plan.schemas))

    @property
    def tables(self) -> list[TablePlan]:
        """Every table that the tasks write messages to, without duplicates."""
        found = {one.table.path: one.table for one in self.destinations if one.table is not None}
        return list(found.values())

    @property
    def topics(self) -> dict[int, TopicAddress]:
        """The topics that messages go to, by the index of the destination."""
        return {at: one.topic for at, one in enumerate(self.destinations) if one.topic is not None}

    @property
    def places(self) -> dict[str, TablePath | str]:
        """The tables, and addresses of topics, of the destinations that have one, by the destination's name."""
        topics = {one.name: one.topic.url for one in self.destinations if one.topic is not None}
        judged = {one.name: one.table.path for one in self.destinations if one.table and one.counter != "passed"}
        return {**topics, **judged, **{one.name: one.path for one in self.results}, "quarantine": self.quarantine}

    @cached_property
    def quarantine_schema(self) -> pa.Schema:
        """The columns of the quarantine table."""
        return make_quarantine_schema()

    @cached_property
    def schemas(self) -> dict[TablePath, pa.Schema]:
        """The columns of every table."""
        direct = {
            one.table.path: one.table.schema for one in self.destinations if one.table and one.counter != "passed"
        }
        made = {one.path: one.schema for one in self.results}
        return {**direct, **made, self.quarantine: self.quarantine_schema}

    def schemas_of(self, topics: Iterable[str]) -> dict[TablePath, pa.Schema]:
        """Return the columns of every table that messages of these topics may go to."""
        return {
            table_of_topic(place, topic): schema
            for place, schema in self.schemas.items()
            for topic in (topics if has_topic(place) else [""])
        }

    @cached_property
    def projection(self) -> Projection:
        """The columns of all tables together: every message is converted once, for all of them."""
        fields = {name for table in self.tables for name in table.projection.fields} | {"offset"}
        fields.update(self.contract.texts)
        names = tuple(name for name in FIELD_TYPES if name in fields)
        return Projection(
            names, self.contract.headers, (), self.contract.texts, self.contract.payload, self.contract.form
        )

    @cached_property
    def fields(self) -> frozenset[str]:
        """The message fields to decode."""
        wanted = set(self.projection.message_fields) | {"offset", "timestamp"}
        wanted |= {"payload", "checksum"} if self.verify_checksum else set()
        wanted |= {"payload"} if self.has_events else set()
        # what goes to a topic goes whole
        wanted |= set(FIELDS) if self.topics else set()
        return frozenset(wanted.union(*(one.fields for one in self.filters)))

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The header keys to locate."""
        keys = [*self.contract.header_keys]
        keys += [CONTENT_TYPE] if self.has_events else []
        for one in self.filters:
            keys += one.header_keys
        return tuple(dict.fromkeys(keys))

    @property
    def filters(self) -> list[Filter]:
        """The conditions of expectations and routes."""
        routes = [one.filter for one in self.destinations if one.filter is not None]
        return [*(one.filter for one in self.expectations), *routes]


def _plan(settings: PipelineSettings, made: pa.Schema | None, bounds: Mapping[str, MessageBound]) -> Plan:
    document, contract = settings.document, settings.contract
    failures = list(_list_failures(contract, document.quality))
    expectations = _plan_expectations(settings, failures)
    return Plan(
        contract,
        _plan_steps(settings) if document.step else _plan_destinations(settings, failures, bounds),
        table_location("quarantine", settings.quarantine_table),
        tuple(failures),
        document.quality.verify_checksum,
        document.quality.require_timestamp,
        made,
        () if made is None else _plan_results(settings, made),
        {table_location("table", place): form for place, form in settings.forms.items()},
        expectations,
        CLOUDEVENTS in document.include,
    )


def _plan_partitions(settings: PipelineSettings, schemas: Mapping[TablePath, pa.Schema]) -> dict[TablePath, Partitions]:
    """Return how each table is divided. Raises SettingError for what no partition can be, and for two ways."""
    found: dict[TablePath, tuple[str, Partitions]] = {}
    for key, section in list_tables(settings):
        path = table_location(f"{key}.to", settings.place(section.to or ""))
        name = f"{settings.name}: {key}.partition_by"
        made = Partitions.parse(section.partition_by, schemas.get(path), name)
        other, before = found.setdefault(path, (key, made))
        if before.words != made.words:
            raise SettingError(
                f"{settings.name}: {other} and {key} both write {path}, with different partition_by; give them the "
                "same, or one of them another table"
            )
    return {path: made for path, (_, made) in found.items() if made}


def _plan_expectations(settings: PipelineSettings, failures: list[Failure]) -> tuple[Expectation, ...]:
    """Return the expectations of a pipeline; ``failures`` grows by those that put messages into quarantine."""
    found = []
    for section in settings.document.expect:
        condition, failure = parse_condition(settings, section.condition), None
        if section.otherwise == "quarantine":
            failure = len(failures)
            failures.append(Failure.of("expectation", section.name, condition=section.condition))
        found.append(Expectation(section.name, condition, section.otherwise, failure))
    return tuple(found)


def _plan_steps(settings: PipelineSettings) -> tuple[Destination, ...]:
    """Return the one destination of a pipeline with SQL steps: a table in its state directory, with what steps see."""
    columns = select_step_columns([step.sql for step in settings.document.step], settings.contract)
    table = TablePlan(local_directory("pipeline.state", settings.state_directory), columns)
    return (Destination("steps", None, table, counter="passed"),)


def _plan_results(settings: PipelineSettings, made: pa.Schema) -> tuple[StepDestination, ...]:
    sections: list[tuple[str, Route | Good]] = [
        *((route.name or f"route {at + 1}", route) for at, route in enumerate(settings.document.route)),
        ("good", settings.document.good),
    ]
    results = []
    for name, section in sections:
        assert section.to is not None
        schema = pa.schema([made.field(column) for column in section.columns or made.names])
        where = section.where if isinstance(section, Route) else None
        results.append(StepDestination(name, where, table_location("table", settings.place(section.to)), schema))
    return tuple(results)


def _plan_destinations(
    settings: PipelineSettings, failures: list[Failure], bounds: Mapping[str, MessageBound]
) -> tuple[Destination, ...]:
    """Return routes and good; ``failures`` grows by those of routes to quarantine, and of topics that refuse."""
    document, contract = settings.document, settings.contract

    def table(to: str | None, named: tuple[str, ...] | None) -> TablePlan | None:
        if to is None:
            return None
        names = named or default_columns(contract)
        headers = tuple(column for column in contract.headers if column.name in names)
        fields = tuple(name for name in names if name in FIELD_TYPES)
        members = tuple(column for column in contract.payload if column.name in names)
        columns = Projection(fields, headers, names, contract.texts, members, contract.form)
        return TablePlan(table_location("table", settings.place(to)), columns)

    def destination(name: str, section: Route | Good, **more: Any) -> Destination:
        topic, refused, too_large = topic_of(section.to), -1, -1
        if topic is not None:
            refused = len(failures)
            failures.append(Failure.of("refused_by_target", name, topic=topic.topic, server=topic.server))
            if topic.url in bounds:
                too_large = len(failures)
                failures.append(Failure.too_large(name, topic, bounds[topic.url]))
        written = table(section.table, section.columns)
        return Destination(name, table=written, topic=topic, refused=refused, too_large=too_large, **more)

    destinations = []
    for at, route in enumerate(document.route):
        name, condition, failure = route.name or f"route {at + 1}", parse_condition(settings, route.where), None
        if route.to == QUARANTINE:
            failure = len(failures)
            failures.append(Failure.of("route", route.name or str(at + 1), condition=route.where))
        state = STATE_BY_WORD[route.set_state] if route.set_state else None
        destinations.append(destination(name, route, filter=condition, state=state, counter="routed", failure=failure))
    return (*destinations, destination("good", document.good, filter=None))


def _list_failures(contract: Projection, quality: Quality) -> Iterator[Failure]:
    """Yield every possible failure of a message, in the order of the checks, on which classification relies."""
    for column in contract.headers:
        if column.required:
            yield Failure.of("missing_header", column.header)
            yield Failure.of("null_header", column.header)
        yield Failure.of("bad_value", column.header, type=type_word(column.type), encoding=column.encoding.value)
        for reason, asked in column.constraint.rules if column.constraint is not None else ():
            yield Failure.of(reason, column.header, asked=asked)
    for name in contract.texts:
        yield Failure.bad_text(name)
    if contract.payload:
        yield Failure.of("payload_malformed")
        if contract.form.has_schema:
            yield Failure.of("schema_unknown")
            yield Failure.of("schema_mismatch")
    for member in contract.payload:
        if member.required:
            yield Failure.of_payload(member.text, "is required, and the payload does not have it")
            yield Failure.of_payload(member.text, "is required and is null")
        yield Failure.of_payload(member.text, f"has a value that is no {member.word}")
        for reason, asked in member.constraint.rules if member.constraint is not None else ():
            yield Failure.of_payload(member.text, BREACHES[reason].format(asked=asked), reason)
    if quality.require_timestamp:
        yield Failure.of("unreadable_time")
    if quality.verify_checksum:
        yield Failure.of("checksum_mismatch")
