"""Bodies, queries and responses of the schema registry, as JSON."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from ...broker.schemas.errors import RegistryError, RegistryFault
from ...model.errors import LadingError, Reason, Refusal
from ..http_shared.documents import error_response
from ..http_shared.http import InPieces, read_body
from ..http_shared.http_guard import HttpGuard
from ..http_shared.routing import Access, HttpRoute, Parameters

if TYPE_CHECKING:
    from ..base.services import Services

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
BODY_BYTES_MAX: Final = 10 << 20
INLINE_BYTES_MAX: Final = 16 << 10
"""JSON longer than this is read and written in a worker, not in the event loop."""
_STORE_FAULT: Final = 50001
"""The code of Confluent's registry if its storage fails; its clients try again."""
_STORE_REASONS: Final = frozenset({Reason.READ_ONLY, Reason.DISK_FULL})


async def read_document(request: Request, services: Services) -> dict[str, Any]:
    """Return the object of a body, an empty one without a body. Raises RegistryError."""
    body = await read_body(request, BODY_BYTES_MAX, services.receive)
    return await services.run_in_worker(len(body), INLINE_BYTES_MAX, _parse_document, body)


def _parse_document(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body.decode() or "{}")
    except RecursionError:
        raise RegistryError(RegistryFault.MALFORMED, "body: nested too deep") from None
    except ValueError as error:
        raise RegistryError(RegistryFault.MALFORMED, f"body: not JSON: {str(error)[:200]}") from None
    if not isinstance(document, dict):
        raise RegistryError(RegistryFault.MALFORMED, "body: has to be a JSON object")
    return document


def is_set(request: Request, name: str) -> bool:
    """Return whether a query has ``name=true``, in any case; Python's clients send ``True``."""
    return request.query_params.get(name, "").lower() == "true"


def read_window(request: Request) -> tuple[int, int | None]:
    """Return the part of a list that a query asks for: offset and limit, None without one."""
    return _read_number(request, "offset") or 0, _read_number(request, "limit")


def _read_number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name, "")
    if not text or text.startswith("-"):
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise RegistryError(RegistryFault.NOT_FOUND, "HTTP 404 Not Found")
    return int(text)


async def respond(document: Any, services: Services, size_bytes: int = 0) -> Response:
    """Return a response; ``size_bytes`` is about its length, so that a long one is written in a worker."""
    body = await services.run_in_worker(size_bytes, INLINE_BYTES_MAX, _encode, document)
    return InPieces(body, media_type=MEDIA_TYPE)


def _encode(document: Any) -> bytes:
    # Python's escapes: a stored text may quote half of a surrogate pair, which UTF-8 does not have
    return json.dumps(document, separators=(",", ":")).encode()


def respond_error(error: LadingError) -> Response:
    """``{"error_code", "message"}``, with the status and code of the registry's own errors."""
    if isinstance(error, RegistryError):
        return _error_response(error.status, error.code, str(error))
    status = error_response(error).status_code
    is_store = isinstance(error, Refusal) and error.reason in _STORE_REASONS
    return _error_response(status, _STORE_FAULT if is_store else status, str(error))


def respond_missing(request: Request, allowed: Sequence[str]) -> Response:
    """Return 404 or 405 in the registry's form."""
    status, text = (405, "HTTP 405 Method Not Allowed") if allowed else (404, "HTTP 404 Not Found")
    return _error_response(status, status, text)


def _error_response(status: int, code: int, message: str) -> Response:
    return Response(_encode({"error_code": code, "message": message}), status, media_type=MEDIA_TYPE)


class RegistryGuard:
    """The guard of HTTP endpoints, with refusals in the registry's form."""

    def __init__(self, services: Services, name: str) -> None:
        self._guard = HttpGuard(services, name, [name, "admin"], frozenset({Access.ADMINISTRATE}))

    def __call__(
        self, request: Request, route: HttpRoute | None, path: Parameters
    ) -> Response | Awaitable[Response | None] | None:
        refused = self._guard(request, route, path)
        if isinstance(refused, Awaitable):
            return self._translate_later(refused)
        return None if refused is None else _translate(refused)

    async def _translate_later(self, refused: Awaitable[Response | None]) -> Response | None:
        response = await refused
        return None if response is None else _translate(response)


def _translate(response: Response) -> Response:
    document: Mapping[str, str] = json.loads(bytes(response.body))
    code = response.status_code * 100 + 1 if response.status_code in (401, 403) else response.status_code
    translated = _error_response(response.status_code, code, document["message"])
    if "www-authenticate" in response.headers:
        translated.headers["www-authenticate"] = response.headers["www-authenticate"]
    return translated
