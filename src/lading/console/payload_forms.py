"""The form in which the pages read the payloads of a topic: that of its contract, or of the console's registry."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from ..model.errors import LadingError
from ..model.message import Message
from ..payloads.decoded import DecodedPayload, decode_by_form
from ..payloads.form import PayloadForm
from ..pipeline.settings import PipelineSettings
from ..transports.interface import TopicMeta
from .source import ConsoleSource


class _SchemaTopics(NamedTuple):
    """The topics whose payloads have a schema by the contract of a pipeline's file, as it was at one time."""

    changed: tuple[int, ...]
    names: Collection[str]


class TopicForms:
    """Forms of topics, by the contracts of these pipelines."""

    def __init__(self, source: ConsoleSource, pipelines: Sequence[Path] = ()) -> None:
        self._source = source
        self._pipelines = pipelines
        self._topics: dict[Path, _SchemaTopics] = {}

    def of(self, meta: TopicMeta) -> PayloadForm:
        """Return the form of the first contract that gives the payloads of a topic a schema, else the console's."""
        for file in self._pipelines:
            try:
                names = self._find_topics(file)
                if meta.name in names or meta.topic in names:
                    # read again each time: a file of the schema may have changed, and not this one
                    return PipelineSettings.load(file).contract.form
            except (LadingError, OSError):
                # the page of pipelines says what is wrong with the file
                continue
        return self._source.form

    def _find_topics(self, file: Path) -> Collection[str]:
        """Return the topics whose payloads have a schema by a file, which is read once for each change."""
        status = file.stat()
        changed = status.st_ino, status.st_size, status.st_mtime_ns
        known = self._topics.get(file)
        if known is None or known.changed != changed:
            settings = PipelineSettings.load(file)
            names = {source.topic for source in settings.document.source if source.topic is not None}
            known = self._topics[file] = _SchemaTopics(changed, names if settings.contract.form.has_schema else ())
        return known.names


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
