"""Routes that change something: sending messages, setting states. A read-only console has none of them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from random import randrange
from typing import Any, Final, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..client.message_json import parse_document
from ..client.partitioning import FIRST_TURNS, PartitionChooser
from ..client.producer import Producer
from ..client.reading import Selection
from ..client.states import set_state
from ..model.errors import LadingError, LocalError
from ..transports.topics import UnknownTopic
from .responses import Document, json_answer
from .source import ConsoleSource

BODY_BYTES_MAX: Final = 64 << 20
JSON_TYPE: Final = "application/json"
CHANGE_NOTER: Final = "lading.console.change_noter"
"""The key of a request's ChangeNoter in its scope, if changes are written down."""


class ChangeNoter(Protocol):
    """Writes down what one request changes."""

    def require(self) -> None:
        """Raise LocalError if a change could not be written down, so that it must not be made."""

    def note(self, action: str, result: str, given: Document, done: Document | None = None) -> None:
        """Write down a change: the document that was given, and the one that was returned, if it was made."""


def changing(
    work: Callable[[Document], Document], *, is_read_only: bool, is_dry_by_default: bool = False
) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler of a request whose body is a document; ``work`` runs in a thread.

    A document with ``dry_run`` changes nothing; ``is_dry_by_default`` says what one without it does.
    """

    async def handle(request: Request) -> Response:
        # forms of other pages cannot send this type without asking first
        if request.headers.get("content-type", "").partition(";")[0].strip() != JSON_TYPE:
            return json_answer({"error": f"send the document as {JSON_TYPE}"}, 415)
        if is_read_only:
            return json_answer({"error": "this console was started with --read-only: it changes nothing"}, 403)
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > BODY_BYTES_MAX:
                return json_answer({"error": f"the request is larger than {BODY_BYTES_MAX:,} bytes"}, 413)
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            return json_answer({"error": "the request is not a JSON object"}, 400)
        noter: ChangeNoter | None = request.scope.get(CHANGE_NOTER)
        if noter is None or document.get("dry_run", is_dry_by_default) is True:
            return json_answer(await run_in_threadpool(work, document))
        action = request.url.path.removeprefix("/api/")
        return json_answer(await run_in_threadpool(_make_noted, noter, action, work, document))

    return handle


def _make_noted(noter: ChangeNoter, action: str, work: Callable[[Document], Document], document: Document) -> Document:
    """Make a change and write it down, in the thread that makes it: it is done even if its page was closed."""
    noter.require()
    try:
        done = work(document)
    except (LadingError, OSError) as error:
        noter.note(action, f"refused: {error}", document)
        raise
    except BaseException as error:
        noter.note(action, f"failed: {type(error).__name__}", document)
        raise
    noter.note(action, "done", document, done)
    return done


class MessageChanges:
    """Handlers."""

    def __init__(self, source: ConsoleSource, *, is_read_only: bool) -> None:
        self._source = source
        self._is_read_only = is_read_only

    def routes(self) -> list[Route]:
        """Return the table for the router."""
        return [
            Route("/api/send", changing(self._send, is_read_only=self._is_read_only), methods=["POST"]),
            Route("/api/states", changing(self._set_state, is_read_only=self._is_read_only), methods=["POST"]),
        ]

    def _send(self, document: Document) -> Document:
        """Send one message. With ``dry_run`` only check it, and return how it would be sent."""
        topic, partition = field_of(document, "topic", str), field_of(document, "partition", int, None)
        message = parse_document(document.get("message"))
        shown = [[key, int(kind), None if data is None else data.hex()] for key, kind, data in message.headers]
        if field_of(document, "dry_run", bool, False):
            creates_topic = self._check_place(topic, partition)
            payload_bytes = None if message.payload is None else len(message.payload)
            return {"sent": 0, "headers": shown, "payload_bytes": payload_bytes, "creates_topic": creates_topic}
        # each request is a producer: those that begin with partition 0 would put all messages there
        with Producer(self._source.url, first_turn=randrange(FIRST_TURNS), **self._source.login) as producer:
            producer.send(topic, message.payload, key=message.key, headers=message.headers, partition=partition)
        return {"sent": 1, "headers": shown}

    def _check_place(self, topic: str, partition: int | None) -> bool:
        """Return whether sending creates the topic. Raises LocalError for a partition that it has not."""
        with self._source.lend() as transport:
            try:
                count, is_new = len(transport.topic(topic).partitions), False
            except UnknownTopic:
                # a producer creates it with one
                count, is_new = 1, True
        if partition is not None:
            PartitionChooser(1).choose(topic, partition, None, count)
        return is_new

    def _set_state(self, document: Document) -> Document:
        """Set the state of one message, or of all that a filter selects; with ``dry_run`` only count them."""
        offset, where = field_of(document, "offset", str, None), field_of(document, "where", str, None)
        selected: dict[str, Any] = {"where": where} if where else {"offsets": [_parse_offset(offset)]}
        with self._source.lend() as transport:
            topic = field_of(document, "topic", str)
            if where and self._source.masks:
                # the number of messages that a filter selects would give the value away
                mask = self._source.mask_of(transport.topic(topic))
                mask.require_searchable(Selection.parse(None, where, "all", verify=False, on_loss="skip").filter)
            done = set_state(
                transport, topic, field_of(document, "state", str),
                partition=field_of(document, "partition", int, None), reason=field_of(document, "reason", str, None),
                dry_run=field_of(document, "dry_run", bool, False), **selected,
            )  # fmt: skip
        return done._asdict()


_REQUIRED: Final = object()


def field_of(document: Document, name: str, type_: type, default: Any = _REQUIRED) -> Any:
    """Return a field of a request. Raises LocalError if it is missing, or of another type."""
    value = document.get(name)
    if value is None and default is not _REQUIRED:
        return default
    if not isinstance(value, type_) or (type_ is int and isinstance(value, bool)):
        raise LocalError(f"field {name!r} of the request: not a {type_.__name__}; send one")
    return value


def _parse_offset(text: str | None) -> int:
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 20:
        raise LocalError("no messages are named; send an offset or a filter")
    return int(text)
