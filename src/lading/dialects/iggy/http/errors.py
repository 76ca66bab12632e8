"""HTTP responses to failed requests: Iggy's error document, or plain text if the request cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from ....model.errors import LadingError, MalformedMessage
from ..classic.errors import ERRORS, NAMES, code_of, name_of, text_of
from .text import dump


class BodyError(MalformedMessage):
    """A body, query or path that cannot be read; the response is ``text/plain`` with ``status`` (iggy.md M6)."""

    def __init__(self, message: str, *, status: HTTPStatus) -> None:
        super().__init__(message)
        self.status = status


def not_json(detail: str) -> BodyError:
    """Return the error for a body that is not JSON: 400."""
    return BodyError(f"Failed to parse the request body as JSON: {detail}", status=HTTPStatus.BAD_REQUEST)


def wrong_document(detail: str) -> BodyError:
    """Return the error for a JSON body in which a field is missing or of the wrong type: 422."""
    return BodyError(
        f"Failed to deserialize the JSON body into the target type: {detail}",
        status=HTTPStatus.UNPROCESSABLE_ENTITY,
    )


def wrong_query(detail: str) -> BodyError:
    """Return the error for a query parameter that is missing or of the wrong type: 400."""
    return BodyError(f"Failed to deserialize query string: {detail}", status=HTTPStatus.BAD_REQUEST)


BODY_TOO_LARGE: Final = BodyError(
    "Failed to buffer the request body: length limit exceeded", status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE
)
"""The body is longer than BODY_BYTES_MAX, or than LOGIN_BYTES_MAX: 413."""


def error_document(error: LadingError, facts: Mapping[str, object]) -> tuple[int, bytes]:
    """Return status and ``{"id", "code", "reason"}`` for a request that was understood and refused.

    ``facts`` are the facts in the request, see ``classic.errors.text_of``; if they do not complete the text of the
    code, the error's own sentence is the reason.
    """
    row = ERRORS[code_of(error)]
    text = text_of(row.code, facts)
    return row.status, dump({"id": row.code, "code": row.name, "reason": str(error) if text is None else text})


_MISSING: Final = frozenset({20, 100, 1009, 1010, 2010, 2011, 3007, 3021, 4000, 5000, 5003, 5006})
_UNAUTHENTICATED: Final = frozenset({40, 47, 53, 77, 78})
"""The status without a valid login. A wrong password (42) and an expired token (54) are 400 on every
release's server.
"""
_UNAUTHORIZED: Final = 41
_LATER_STATUS: Final[Mapping[int, HTTPStatus]] = {
    **dict.fromkeys(_MISSING, HTTPStatus.NOT_FOUND),
    **dict.fromkeys(_UNAUTHENTICATED, HTTPStatus.UNAUTHORIZED),
    _UNAUTHORIZED: HTTPStatus.FORBIDDEN,
    # the disk is full or broken, which is not the request's fault
    **dict.fromkeys((4006, 4010), HTTPStatus.INTERNAL_SERVER_ERROR),
}
"""The HTTP status by code, in releases that have users; all other codes are 400 (iggy-current.md B5).

A missing name has the same status as a missing id, 404: clients since 0.6 read it as a response that it does not exist.
"""


def later_error_document(code: int, reason: str) -> tuple[int, bytes]:
    """Return status and ``{"id", "code", "reason", "field"}`` as releases since 0.1 have them."""
    name = NAMES.get(code) or name_of(code)
    document = {"id": code, "code": name, "reason": reason, "field": None}
    return _LATER_STATUS.get(code, HTTPStatus.BAD_REQUEST), dump(document)
