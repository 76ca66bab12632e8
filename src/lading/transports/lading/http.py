"""Requests to Lading's admin endpoint: one kept connection, retries with backoff, errors as sentences.

It uses the standard library's HTTP client: a fetch of a megabyte costs half as much as with a client in plain Python.
"""

from __future__ import annotations

import json
import os
import random
import select
import ssl
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from http.client import (
    BadStatusLine,
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    HTTPSConnection,
    RemoteDisconnected,
)
from textwrap import shorten
from typing import Any, Final, Literal, NamedTuple, NoReturn
from urllib.parse import quote, urlencode

from ...model.errors import CorruptError, Reason, Refusal, RemoteError, SettingError, Unreachable
from ...runtime.read_deadline import DeadlineSocket, read_content
from ..client_tls import NAME_CA_FILE, ClientTls, explain_failure
from ..network import reading_response

Method = Literal["GET", "PUT", "POST", "DELETE"]
TOKEN_VARIABLE = "LADING_TOKEN"
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
ERROR_TEXT_MAX: Final = 200
RESPONSE_BYTES_MAX: Final = 512 << 20
"""Size limit of a response, as for those of a Kafka broker."""
NAME_ADMIN: Final = "name the address of its admin endpoint (Lading prints it as admin when it starts)"
PASSING = (Reason.STOPPING,)
"""Refusals that a repeated request may not get again, such as while the broker restarts."""


class HttpResponse(NamedTuple):
    """A whole response; names of ``headers`` in any case."""

    status: int
    headers: Message
    content: bytes

    def json(self) -> Any:
        """Return the content as JSON. Raises RemoteError if it is not JSON, and when a missing member of an object is
        read.
        """
        with reading_document():
            return json.loads(self.content, object_hook=_Fields)

    def fields(self) -> dict[str, Any]:
        """Return the content as a JSON object. Raises RemoteError, also when a missing member is read."""
        return require_fields(self.json())

    def rows(self) -> list[dict[str, Any]]:
        """Return the content as a list of JSON objects. Raises RemoteError, also when a missing member is read."""
        with reading_document():
            return [require_fields(row) for row in _require_list(self.json())]


@contextmanager
def reading_document() -> Iterator[None]:
    """Raise RemoteError for a document without the form of Lading's documents."""
    with reading_response(NAME_ADMIN):
        yield


class _Fields(dict[str, Any]):
    """An object of a response; reading a missing member means that the response is another server's."""

    def __missing__(self, name: str) -> NoReturn:
        raise RemoteError(f"a response of the server has no {name!r}; {NAME_ADMIN}")


def require_fields(value: Any) -> dict[str, Any]:
    """Return an object of a response. Raises RemoteError if it is something else."""
    if not isinstance(value, dict):
        raise RemoteError(f"a response of the server has a {type(value).__name__} for an object; {NAME_ADMIN}")
    return value


def _require_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


class AdminHttp:
    """One admin endpoint over HTTP/1.1; one thread at a time.

    A request that may safely be repeated (``again=True``) is repeated ``retries`` times with doubling, jittered pauses
    when the connection breaks; a server that never responded at all is Unreachable at once. Without ``token`` the
    environment's LADING_TOKEN is used, if set.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_s: float = 30.0,
        retries: int = 6,
        token: str | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        if timeout_s <= 0:
            raise SettingError(f"timeout_s is a number of seconds above 0, not {timeout_s!r}")
        if retries < 0:
            raise SettingError(f"retries is 0 or more, not {retries!r}")
        self.place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._retries = retries
        self._timeout_s = timeout_s
        self._answered = False
        self._socket: DeadlineSocket | None = None
        """The socket of ``_connection``, since it was last opened."""
        token = token or os.environ.get(TOKEN_VARIABLE)
        self._headers = {"authorization": f"Bearer {token}".encode()} if token else {}
        self._connection = (
            HTTPConnection(host, port, timeout=timeout_s)
            if tls is None
            else HTTPSConnection(host, port, timeout=timeout_s, context=tls.make_context())
        )

    def log_in(self, name: str, password: str) -> None:
        """Send the requests from now on as this user, instead of with a token."""
        self._headers = {"authorization": b"Basic " + b64encode(f"{name}:{password}".encode())}

    def act_for(self, name: str) -> None:
        """Send the requests from now on with the rights of this user; the token has to be an administrator's."""
        self._headers["lading-on-behalf-of"] = quote(name, safe="").encode()

    def get(self, *parts: str | int, wait_ms: int = 0, **query: Any) -> HttpResponse:
        """GET the resource at these path parts; query values that are None are left out."""
        return self.request("GET", *parts, wait_ms=wait_ms, again=True, query=query)

    def request(
        self,
        method: Method,
        *parts: str | int,
        again: bool,
        query: Mapping[str, Any] | None = None,
        document: Any = None,
        content: bytes | None = None,
        wait_ms: int = 0,
    ) -> HttpResponse:
        """Send a JSON ``document`` or raw ``content``, and wait the time-out plus ``wait_ms`` for the response.

        Raises Refusal if the server gives a reason, RemoteError for other statuses, Unreachable if no response comes.
        """
        path = "/" + "/".join(quote(str(part), safe="") for part in parts)
        params = {name: value for name, value in (query or {}).items() if value is not None}
        target = f"{path}?{urlencode(params)}" if params else path
        body = content if document is None else json.dumps(document).encode()
        pause_s = FIRST_PAUSE_S
        for left in range(self._retries, -1, -1):
            connected = False
            try:
                self._connect()
                connected = True
                answer = self._exchange(method, target, body, self._timeout_s + wait_ms / 1000)
                if 200 <= answer.status < 300:
                    return answer
                error = refusal(answer, f"{method} {self.place}{path}")
                # Lading, nginx and Go's servers use different words for it
                if answer.status == 400 and not isinstance(error, Refusal) and b"https" in answer.content.lower():
                    raise Unreachable(
                        f"the broker at {self.place} takes TLS only; write lading://{self.place}?tls=true, and "
                        f"unless a public authority signed its certificate, {NAME_CA_FILE}"
                    )
                if not (again and left and isinstance(error, Refusal) and error.reason in PASSING):
                    raise error
            except (OSError, HTTPException) as failure:
                self._connection.close()
                if not self._answered or not left or not (again or not connected):
                    raise self._unreachable_error(failure) from None
            time.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Close the kept connection; a later request opens it again."""
        self._connection.close()

    def _connect(self) -> None:
        """Open a connection, unless one is open: readable bytes before a request mean that the server closed it."""
        sock = self._connection.sock
        if sock is not None and select.select([sock], [], [], 0)[0]:
            self._connection.close()
        if self._connection.sock is None:
            self._connection.timeout = self._timeout_s
            self._connection.connect()
            opened: Any = self._connection.sock
            self._socket = self._connection.sock = DeadlineSocket(opened, self._timeout_s)

    def _exchange(self, method: Method, target: str, body: bytes | None, timeout_s: float) -> HttpResponse:
        assert self._socket is not None
        self._socket.begin(timeout_s, has_content=bool(body))
        self._connection.request(method, target, body, self._headers)
        response = self._connection.getresponse()
        answer = HttpResponse(response.status, response.headers, self._read(response))
        self._answered = True
        return answer

    def _read(self, response: HTTPResponse) -> bytes:
        """Return the whole content. Raises CorruptError, and closes the connection, if it is too long."""
        content = read_content(response, RESPONSE_BYTES_MAX)
        if content is not None:
            return content
        self._connection.close()
        raise CorruptError(
            f"the server at {self.place} sends a response of more than {RESPONSE_BYTES_MAX} bytes; {NAME_ADMIN}"
        )

    def _unreachable_error(self, failure: Exception) -> Unreachable:
        if isinstance(failure, TimeoutError) and self._answered:
            return Unreachable(f"the broker at {self.place} did not answer within {self._timeout_s:g} s")
        if self._answered:
            return Unreachable(
                f"the connection to the broker at {self.place} broke and {self._retries} retries did not bring it back "
                f"({explain_failure(failure)})"
            )
        if isinstance(failure, BadStatusLine) and not isinstance(failure, RemoteDisconnected):
            return Unreachable(f"the server at {self.place} does not speak HTTP; {NAME_ADMIN}")
        if isinstance(failure, ssl.SSLError):
            return Unreachable(f"the broker at {self.place}: TLS failed: {explain_failure(failure)}")
        return Unreachable(
            f"no broker is reachable at {self.place} ({explain_failure(failure)}); "
            f"start one with `lading serve --data DIR`, or {NAME_ADMIN}"
        )


def refusal(answer: HttpResponse, request: str) -> Refusal | RemoteError:
    """Return the error that a response with an error status stands for."""
    try:
        document = json.loads(answer.content)
        return Refusal(Reason(document["reason"]), str(document["message"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        text = shorten(answer.content.decode(errors="replace"), ERROR_TEXT_MAX, placeholder=" …")
        return RemoteError(
            f"{request} was answered with status {answer.status}" + (f": {text}" if text else ""), code=answer.status
        )
