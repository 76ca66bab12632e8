"""Problems of a pipeline's settings themselves, found without a look at sources or tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from ..columns.contract import FIELD_TYPES, HeaderColumn, Projection, did_you_mean
from ..columns.field_names import field_meant
from ..filter.filter import Filter
from ..filter.parse import parse
from ..model.errors import FilterError, SettingError
from ..model.toml import toml_text
from ..tables.formats.directory import DEFAULT_FORM
from ..tables.formats.registry import split_target
from ..tables.storage.files import local_directory, table_location
from ..tables.storage.object_path import TablePath
from ..tables.topic_tables import TOPIC, has_topic, require_topic_alone
from ..transports.topic_address import TopicAddress
from .sections import Good, Route
from .settings import PipelineSettings
from .steps import default_columns
from .targets import table_of


def problems(settings: PipelineSettings) -> Iterator[str]:
    """Yield every problem of the settings themselves, without a look at sources or tables."""
    document = settings.document
    topics = [topic for source in document.source for topic in source.selection.names]
    for topic in {topic for topic in topics if topics.count(topic) > 1}:
        yield f"{settings.name}: two sources name the topic {topic!r}; positions are kept by topic: use two pipelines"
    for key, target in settings.topics.items():
        for source in document.source:
            server, selection = settings.server(source), source.selection
            named = any(target.is_same(TopicAddress(server, topic)) for topic in selection.names)
            if named or (target.is_same(TopicAddress(server, target.topic)) and selection.matches(target.topic)):
                yield (
                    f"{settings.name}: {key} {target.topic!r} is the topic that the pipeline reads, which would read "
                    "its own copies again and again; name another one"
                )
    lower: dict[str, str] = {}
    for column in settings.contract.typed:
        if (other := lower.setdefault(column.name.lower(), column.name)) != column.name:
            yield (
                f"{settings.name}: headers.{other} and headers.{column.name} differ only in case, which "
                f'Spark does not tell apart; name one differently, for example header_{column.name} = {{ type = "…", '
                f"from = {toml_text(column.header if isinstance(column, HeaderColumn) else column.text)} }}"
            )
    places: dict[TablePath, str] = {}
    columns: dict[TablePath, tuple[str, tuple[str, ...]]] = {}
    for key, condition in _list_conditions(settings):
        try:
            parse_condition(settings, condition)
        except FilterError as error:
            yield f"{settings.name}: {key}: {error}"
    for key, section in list_tables(settings):
        assert section.to is not None
        try:
            require_topic_alone(f"{key}.to", section.to)
            path = table_location(f"{key}.to", settings.place(section.to))
        except SettingError as error:
            yield f"{settings.name}: {error}"
            continue
        names = section.columns or default_columns(settings.contract)
        if not document.step:
            yield from (f"{settings.name}: {key}.columns: {text}" for text in _wrong_columns(names, settings.contract))
        first, before = columns.setdefault(path, (key, names))
        if before != names:
            differing = sorted(set(before) ^ set(names)) or ["another order"]
            yield (
                f"{settings.name}: {first} and {key} both write {path}, with different columns "
                f"({', '.join(differing)}); give them the same columns, or one of them another table"
            )
        places[path] = key
        if document.step and has_topic(path):
            yield f"{settings.name}: {key}.to: rows that the steps made are of no topic; name a table without {TOPIC}"
    if document.quarantine.to is not None and has_topic(document.quarantine.to):
        yield f"{settings.name}: quarantine.to: the quarantine is one table for all topics; name it without {TOPIC}"
    if (form := split_target(table_of(document.quarantine.to) or "")[0]) != DEFAULT_FORM:
        yield f"{settings.name}: quarantine.to: {form!r} is not supported; name {DEFAULT_FORM}:DIRECTORY"
    try:
        quarantine = table_location("quarantine.to", settings.quarantine_table)
        if quarantine in places:
            other = places[quarantine]
            yield f"{settings.name}: quarantine and {other} both write {quarantine}; give one another table"
        places[quarantine] = "quarantine"
        local_directory("pipeline.state", settings.state_directory)
    except SettingError as error:
        yield f"{settings.name}: {error}"
    for path, key in places.items():
        outer = next((other for other in places if other in path.parents), None)
        if outer is not None:
            yield (
                f"{settings.name}: the table of {key}, {path}, is inside that of {places[outer]}, whose readers "
                "would find it there; put them next to each other"
            )


def _list_conditions(settings: PipelineSettings) -> list[tuple[str, str]]:
    document = settings.document
    conditions = [(f"expect[{at + 1}].condition", one.condition) for at, one in enumerate(document.expect)]
    if not document.step:
        # what steps make is known to Spark alone: it looks at conditions and columns
        conditions += [(f"route[{at + 1}].where", one.where) for at, one in enumerate(document.route)]
    return conditions


def list_condition_keys(settings: PipelineSettings) -> set[str]:
    """Return the headers that conditions name; conditions that cannot be parsed are left out."""
    keys = set[str]()
    for _, condition in _list_conditions(settings):
        with suppress(FilterError):
            keys |= {*parse_condition(settings, condition).header_keys}
    return keys


def list_tables(settings: PipelineSettings) -> list[tuple[str, Route | Good]]:
    """Return the sections that have a table, by their key in the file."""
    sections = settings.document.route
    routes: list[tuple[str, Route | Good]] = [(f"route[{at + 1}]", one) for at, one in enumerate(sections)]
    return [(key, one) for key, one in [*routes, ("good", settings.document.good)] if one.table is not None]


def _wrong_columns(names: tuple[str, ...], contract: Projection) -> Iterator[str]:
    known = [*(column.name for column in contract.typed), *FIELD_TYPES]
    for name in names:
        if name not in known:
            field = field_meant(name, FIELD_TYPES)
            near = did_you_mean(name, known) if field is None else f" (did you mean {field!r}?)"
            yield f"{name!r} is neither a header of [headers] nor a message field{near}"
    if twice := next((name for name in names if names.count(name) > 1), None):
        yield f"{twice!r} is named twice"


def parse_condition(settings: PipelineSettings, text: str) -> Filter:
    """Return a condition over the messages of a pipeline, typed by its contract. Raises FilterError."""
    return parse(text, settings.contract if settings.contract.typed else None, form=settings.contract.form)
