"""The form in which the pages read the payloads of a topic: that of its contract, or of the console's registry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..model.errors import LadingError
from ..model.message import Message
from ..payloads.decoded import DecodedPayload, decode_by_form
from ..payloads.form import PayloadForm
from ..pipeline.settings import PipelineSettings
from ..transports.interface import TopicMeta
from .source import ConsoleSource


class TopicForms:
    """Forms of topics, by the contracts of these pipelines."""

    def __init__(self, source: ConsoleSource, pipelines: Sequence[Path] = ()) -> None:
        self._source = source
        self._pipelines = pipelines

    def of(self, meta: TopicMeta) -> PayloadForm:
        """Return the form of the first contract that gives the payloads of a topic a schema, else the console's."""
        for file in self._pipelines:
            try:
                settings = PipelineSettings.load(file)
            except LadingError:
                # the page of pipelines says what is wrong with the file
                continue
            topics = {one.topic for one in settings.document.source}
            if settings.contract.form.has_schema and not topics.isdisjoint({meta.name, meta.topic}):
                return settings.contract.form
        return self._source.form


class ListDecoder:
    """Decodes the payloads of one page; after a registry was away once, its other payloads are shown as bytes."""

    def __init__(self, form: PayloadForm) -> None:
        self._form = form
        self._is_away = not form.has_schema

    def decode(self, message: Message) -> DecodedPayload | None:
        """Return a decoded payload; None for one that is shown as it is."""
        if self._is_away:
            return None
        try:
            return decode_by_form(self._form, message)
        except LadingError:
            self._is_away = True
            return None
