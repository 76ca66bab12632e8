"""Topics that are created, changed, emptied and deleted from the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from starlette.routing import Route

from ..client.admin import Admin
from ..client.units import topic_settings
from ..model.errors import LocalError, SettingError
from ..transports.interface import Transport
from ..transports.lading.transport import LadingTransport
from .changes import changing, field_of
from .responses import Document
from .source import ConsoleSource

PARTITIONS_MAX: Final = 100_000


class TopicChanges:
    """Handlers."""

    def __init__(self, source: ConsoleSource, *, is_read_only: bool) -> None:
        self._source = source
        self._is_read_only = is_read_only

    def routes(self) -> list[Route]:
        """Return the table for the router."""
        table = {"create": self._create, "settings": self._set, "empty": self._empty, "delete": self._delete}
        return [
            Route(f"/api/topic/{name}", changing(work, is_read_only=self._is_read_only), methods=["POST"])
            for name, work in table.items()
        ]

    def _create(self, document: Document) -> Document:
        name, partitions = field_of(document, "topic", str), field_of(document, "partitions", int, 1)
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise LocalError(f"{partitions:,} partitions for a topic; choose 1 to {PARTITIONS_MAX:,}")
        settings = _read_settings(field_of(document, "settings", list, []))
        with self._source.lend() as transport:
            if settings:
                meta = _require_broker(transport).create_topic(name, partitions, settings)
            else:
                meta = transport.create_topic(name, partitions)
        return {"topic": meta.name, "partitions": len(meta.partitions)}

    def _set(self, document: Document) -> Document:
        name, settings = field_of(document, "topic", str), _read_settings(field_of(document, "settings", list))
        with self._source.lend() as transport:
            return {"settings": dict(_require_broker(transport).alter_topic(name, settings).settings)}

    def _empty(self, document: Document) -> Document:
        name = field_of(document, "topic", str)
        with self._source.lend() as transport:
            return {"emptied": name, "deleted": Admin(transport).empty_topic(name)}

    def _delete(self, document: Document) -> Document:
        name = field_of(document, "topic", str)
        with self._source.lend() as transport:
            meta = transport.topic(name)
            Admin(transport).delete_topic(meta.name)
        return {"deleted": meta.name}


def _require_broker(transport: Transport) -> LadingTransport:
    if not isinstance(transport, LadingTransport):
        raise LocalError("settings of topics are changed at a broker of Lading; use the cluster's own tools here")
    return transport


def _read_settings(words: Sequence[Any]) -> dict[str, Any]:
    """Return settings from KEY=VALUE words, with units as on the command line: ``retention_age_us=7d``."""
    if not all(isinstance(word, str) for word in words):
        raise SettingError("field 'settings' of the request: write each as KEY=VALUE")
    return topic_settings(list(words))
