"""What tasks and the driver's commit need to know of one run; it travels to them as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..columns.contract import Projection
from ..spark.ranges import Range
from ..spark.reading import Reading
from .plan import Plan
from .settings import PipelineSettings


@dataclass(frozen=True)
class SourcePlace:
    """Where the messages of one topic come from, and the broker that owns them."""

    from_: str
    server: str
    states: Any
    fail_on_data_loss: bool
    transport: Mapping[str, Any]


@dataclass(frozen=True)
class PipelineJob:
    """One run of one pipeline; ``sources`` by flat topic name, ``accepted`` are ranges that the breaker lets pass."""

    document: Mapping[str, Any]
    base: str
    name: str
    state: str
    pipeline: str
    run: str
    resume_command: str
    accept_command: str
    sources: Mapping[str, SourcePlace]
    accepted: tuple[Mapping[str, Any], ...] = ()

    def text(self) -> str:
        """As JSON."""
        return json.dumps({**asdict(self), "document": self.document}, default=str)

    @classmethod
    def parse(cls, text: str) -> PipelineJob:
        """The inverse of ``text``."""
        held = json.loads(text)
        held["sources"] = {topic: SourcePlace(**row) for topic, row in held["sources"].items()}
        held["accepted"] = tuple(held["accepted"])
        return cls(**held)

    @cached_property
    def settings(self) -> PipelineSettings:
        """The settings as the file says."""
        return PipelineSettings(self.document, Path(self.base), self.name)

    @cached_property
    def plan(self) -> Plan:
        """What they mean."""
        return Plan.of(self.settings)

    def reading(self, piece: Range) -> Reading:
        """How a range is read."""
        source = self.sources[piece.topic]
        return Reading(
            source.from_,
            Projection(("offset",)),
            states=source.states,
            fail_on_data_loss=source.fail_on_data_loss,
            transport=source.transport,
        )
