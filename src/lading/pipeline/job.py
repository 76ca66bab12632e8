"""Description of a run for tasks and for the commit in the driver, passed to them as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..columns.contract import Projection
from ..model.errors import SettingError
from ..model.protocol import Capabilities, MessageBound
from ..tables.plan.options import type_transport
from ..tables.plan.ranges import OffsetRange
from ..tables.scan.scan_spec import ScanSpec
from ..transports.open import capabilities_of
from ..transports.secrets import name_process
from ..transports.topic_address import TopicAddress
from ..transports.topic_selection import TopicSelection
from .plan import Plan
from .settings import PipelineSettings


def schema_text(schema: pa.Schema) -> str:
    """Return an Arrow schema as text."""
    return base64.b64encode(schema.serialize()).decode()


def schema_of_text(text: str) -> pa.Schema:
    """Return the schema that ``schema_text`` wrote."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


@dataclass(frozen=True)
class SourcePlace:
    """The source of topics, and the broker that owns their messages."""

    from_: str
    server: str
    states: Any
    fail_on_data_loss: bool
    transport: Mapping[str, Any] = field(repr=False)
    """How it is reached, as it stands in the file: references instead of secrets, which each process follows."""
    topics: Sequence[str] | None = None
    """The flat names of its topics; None if a pattern selects them."""
    topic_pattern: str | None = None


@dataclass(frozen=True)
class PipelineJob:
    """One run of a pipeline; ``accepted`` are the ranges that the breaker lets pass."""

    document: Mapping[str, Any] = field(repr=False)
    base: str
    name: str
    state: str
    pipeline: str
    run: str
    resume_command: str
    accept_command: str
    sources: Sequence[SourcePlace]
    accepted: tuple[Mapping[str, Any], ...] = ()
    step_schema: str | None = None
    """The columns that the steps return, as ``schema_text`` writes them."""
    bounds: Mapping[str, MessageBound] = field(default_factory=dict)
    """Message bounds of the target topics when the run began, by URL."""

    def text(self) -> str:
        """Return the job as JSON."""
        return json.dumps({**asdict(self), "document": self.document}, default=str)

    @classmethod
    def parse(cls, text: str) -> PipelineJob:
        """Return the job that ``text`` wrote."""
        held = json.loads(text)
        held["sources"] = [SourcePlace(**row) for row in held["sources"]]
        held["accepted"] = tuple(held["accepted"])
        held["bounds"] = {url: MessageBound(*row) for url, row in held["bounds"].items()}
        return cls(**held)

    @cached_property
    def settings(self) -> PipelineSettings:
        """The settings in the file."""
        return PipelineSettings(self.document, Path(self.base), self.name)

    @cached_property
    def plan(self) -> Plan:
        """The plan of the settings."""
        made = None if self.step_schema is None else schema_of_text(self.step_schema)
        return Plan.of(self.settings, made, self.bounds)

    def capabilities_at(self, topic: TopicAddress) -> Capabilities:
        """Return what a message keeps in a topic, and what that takes at most."""
        if topic.url not in self._capabilities:
            found = capabilities_of(topic.server)
            self._capabilities[topic.url] = replace(found, bound=self.bounds.get(topic.url))
        return self._capabilities[topic.url]

    @cached_property
    def _capabilities(self) -> dict[str, Capabilities]:
        return {}

    def source_of(self, topic: str) -> SourcePlace:
        """Return the source of a topic, by its flat name: topics that match a pattern are found during a run."""
        if topic not in self._sources:
            self._sources[topic] = next(
                source
                for source in self.sources
                if TopicSelection.parse(source.topics or (), source.topic_pattern).matches(topic)
            )
        return self._sources[topic]

    @cached_property
    def _sources(self) -> dict[str, SourcePlace]:
        return {}

    def reading(self, piece: OffsetRange) -> ScanSpec:
        """Return how a range is read."""
        source = self.source_of(piece.topic)
        return ScanSpec(
            source.from_,
            Projection(("offset",)),
            states=source.states,
            fail_on_data_loss=source.fail_on_data_loss,
            transport=self._follow(source),
        )

    def _follow(self, source: SourcePlace) -> dict[str, Any]:
        """Return the options of a source's transport. Raises SettingError, which names this process."""
        try:
            return type_transport(self.settings.expand_transport(source.transport))
        except SettingError as error:
            raise SettingError(
                f"{error}. That was {name_process()}, which reads {source.from_}: the driver and every executor read "
                "source.transport for themselves"
            ) from None
