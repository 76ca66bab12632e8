"""The schemas of the broker's own registry for threads that evaluate conditions on payloads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final

from ...model.errors import Unreachable
from ...payloads.form import JSON_FORM, PayloadForm, SchemaText
from ...payloads.identity import SchemaIdentity
from ...schemas.parsed import InvalidSchema, ParsedSchema
from ..core.topology import Topic
from .registry import SchemaRegistry

UNKNOWN_MAX: Final = 200
"""Missing ids that one request may look up; after these, further ids count as unknown without a lookup."""
_LOOK_S: Final = 10.0
"""How long a thread waits for the event loop to return a schema; it takes longer only if the broker stops."""


class StoredSchemas:
    """A SchemaSource of one request. Threads: made in the event loop, asked in any other thread."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._loop = asyncio.get_running_loop()
        self._found: dict[int | str, ParsedSchema | None] = {}
        self._unknown = 0

    def find_by_id(self, schema_id: int) -> ParsedSchema | None:
        """See SchemaSource."""
        return self._find(schema_id)

    def find_by_guid(self, guid: str) -> ParsedSchema | None:
        """See SchemaSource."""
        return self._find(guid)

    def identify(self, name: int | str) -> SchemaIdentity | None:
        """See SchemaSource. Conditions do not read it."""
        return None

    def _find(self, name: int | str) -> ParsedSchema | None:
        if name not in self._found:
            if self._unknown >= UNKNOWN_MAX:
                return None
            text = self._look(partial(self._registry.find_text, name))
            if text is None:
                self._unknown += 1
            self._found[name] = None if text is None else text.parse()
        return self._found[name]

    def _look(self, find: Callable[[], SchemaText | None]) -> SchemaText | None:
        result: Future[SchemaText | None] = Future()

        def run() -> None:
            try:
                result.set_result(find())
            except InvalidSchema as error:
                result.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        try:
            return result.result(_LOOK_S)
        except TimeoutError:
            raise Unreachable("schema registry of this broker: stopping; try again after its restart") from None


def choose_form(registry: SchemaRegistry, topic: Topic) -> PayloadForm:
    """Return how conditions read the payloads of a topic: by the ids of their schemas if it checks these, else JSON."""
    if not topic.settings.validate_schemas:
        return JSON_FORM
    return PayloadForm("schema", source=StoredSchemas(registry))
