"""Responses of the console: documents, streams of one document a line, and errors as sentences."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ..model.errors import FilterError, LadingError, LocalError, Reason, Refusal, Unreachable

Document = dict[str, Any]
STREAMS_MAX: Final = 24
"""At most this many searches and tails are open; each has a thread."""
_STREAMS: Final = threading.BoundedSemaphore(STREAMS_MAX)


def encode(document: Any) -> bytes:
    """Return a document as JSON. Half of a surrogate pair, which UTF-8 cannot hold, is written as its escape."""
    return json.dumps(document, separators=(",", ":"), default=str).encode()


def json_answer(document: Any, status: int = 200) -> Response:
    """Return a document as a response."""
    return Response(encode(document), status, media_type="application/json")


def describe(error: Exception) -> Document:
    """Return an error as the page shows it; ``at`` is the place in a filter that cannot be parsed."""
    found: Document = {"error": str(error), "unreachable": isinstance(error, Unreachable)}
    if isinstance(error, FilterError):
        found["at"] = error.at
    return found


def error_answer(error: Exception) -> Response:
    """Return the response for an error that a request met."""
    status = 500
    if isinstance(error, Refusal):
        status = 403 if error.reason is Reason.UNAUTHORIZED else 400
    elif isinstance(error, LocalError):
        status = 400
    elif isinstance(error, Unreachable):
        status = 502
    return json_answer(describe(error), status)


def stream_answer(make: Callable[[], Iterator[Document]]) -> Response:
    """Return a response that sends documents as they are made, one a line, until the page is closed.

    An error is the last document of its stream. If ``STREAMS_MAX`` of them are open, it is an error at once.
    """
    if not _STREAMS.acquire(blocking=False):
        return json_answer({"error": f"{STREAMS_MAX} searches and tails are open already; close one"}, 503)

    def lines() -> Iterator[bytes]:
        try:
            for document in make():
                yield encode(document) + b"\n"
        except (LadingError, OSError) as error:
            yield encode(describe(error)) + b"\n"

    # nginx would otherwise keep back what arrives until its buffer is full
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return _LimitedStream(lines(), media_type="application/x-ndjson", headers=headers)


class _LimitedStream(StreamingResponse):
    """A stream that frees its place, however it ends."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            _STREAMS.release()


def number_of(request: Request, name: str, default: int, most: int) -> int:
    """Return a number of the query. Raises LocalError unless it is between 1 and ``most``."""
    text = request.query_params.get(name) or str(default)
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:20]) <= most:
        raise LocalError(f"{name}={text[:40]!r}: invalid; send a number from 1 to {most:,}")
    return int(text)


def text_of(request: Request, name: str) -> str:
    """Return a text of the query. Raises LocalError if it is missing."""
    text = request.query_params.get(name, "")
    if not text:
        raise LocalError(f"{name} is missing in the request; add it")
    return text
