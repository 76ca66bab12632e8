"""Refusals over HTTP, as each release has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from ....dialects.iggy.classic.releases import RELEASES
from ....dialects.iggy.http.errors import BodyError, error_document, later_error_document
from ....model.errors import LadingError, Reason
from ...http_shared.http import TextResponse

if TYPE_CHECKING:
    from .callers import HttpCaller


_OF_LOGINS: Final = frozenset(
    {
        Reason.UNAUTHENTICATED,
        Reason.UNAUTHORIZED,
        Reason.INVALID_CREDENTIALS,
        Reason.USER_INACTIVE,
        Reason.INVALID_TOKEN,
        Reason.TOKEN_EXPIRED,
    }
)
"""Errors unknown to the first releases: all releases get the response of 0.1 and later."""


def refuse(error: LadingError) -> Response:
    """Return the response to a request that is refused before its caller is identified."""
    if isinstance(error, BodyError):
        return TextResponse(str(error), error.status)
    status, document = error_document(error, {})
    return Response(document, status, media_type="application/json")


def refuse_caller(
    error: LadingError,
    caller: HttpCaller | None,
    facts: Callable[[], Mapping[str, object]] | None = None,
    request: type[Any] | None = None,
) -> Response:
    """Return the response to a refused request, in the error codes of the caller's release.

    ``caller`` is None if the token is not valid. ``facts`` returns what the request named, ``request`` is its class.
    """
    if isinstance(error, BodyError):
        return TextResponse(str(error), error.status)
    is_of_login = getattr(error, "reason", None) in _OF_LOGINS
    if caller is not None and not caller.release.has_users and not is_of_login:
        status, document = error_document(error, facts() if facts else {})
        return Response(document, status, media_type="application/json")
    release = RELEASES[-1] if caller is None or not caller.release.has_users else caller.release.release
    status, document = later_error_document(release.code_of(error, request), str(error))
    return Response(document, status, media_type="application/json")
