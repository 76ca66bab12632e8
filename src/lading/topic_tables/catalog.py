"""The catalog that engines ask for tables: the reads of Iceberg's REST specification, and the objects in S3's form."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, BinaryIO, Final, TypeVar
from urllib.parse import parse_qsl, quote, unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ..endpoints.base.fair_runner import FairLimits, FairRunner, call_once
from ..endpoints.base.login_throttle import network_of
from ..model.errors import LadingError, Reason, Refusal, RemoteError, Unreachable
from .callers import Callers
from .file_store import FileStore
from .files import RenderedFile
from .keys import LIFETIME_S, REGION, Grant, VendedKeys
from .source import TableSource, TopicTable, describe_table
from .tables import BUCKET, LiveTables

T = TypeVar("T")
PREFIX: Final = "lading"
PIECE_BYTES: Final = 1 << 20
MAKING_S: Final = 600
"""Time that engines should wait for a file that is rendered when it is requested."""
FORM_BYTES_MAX: Final = 16_384
LOGINS: Final = FairLimits(
    threads=16,
    waiting_max=256,
    client_waiting_max=256,
    reason=Reason.STOPPING,
    sentence="too many logins wait; retry later",
)
"""The limit of logins by address, for callers that the source has not accepted before: wrong passwords wait in the
source for seconds, and would take all threads from callers that it has accepted."""
READS: Final = [
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials",
]
"""All endpoints there are; clients that write see from this list that they cannot."""
READ_ONLY: Final = "tables of topics are read-only: send messages to the topic"
LOGIN_NEEDED: Final = (
    "the tables need a login: a bearer token of the source, a name and password at /v1/oauth/tokens, or the key that "
    "was printed at the start"
)
NO_KEY: Final = "the key is missing, wrong or expired; load the table again"
TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
NOT_STORED: Final = {"cache-control": "no-store"}
_XML: Final = "application/xml"


def respond(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a document as a response."""
    body = json.dumps(document, separators=(",", ":")).encode()
    return Response(body, status, dict(headers or {}), "application/json")


def refuse(status: int, kind: str, text: str) -> Response:
    """Return an error in the form of the specification (ErrorModel)."""
    return respond({"error": {"message": text, "type": kind, "code": status}}, status)


class TableCatalog:
    """An ASGI application with two APIs on one port: ``/v1`` is the catalog, ``/topics`` the bucket."""

    def __init__(
        self, callers: Callers, tables: LiveTables, keys: VendedKeys, clock: Callable[[], float] = time.time
    ) -> None:
        """``clock`` gives the seconds since 1970 at which keys are vended and end."""
        self._callers = callers
        self._tables = tables
        self._keys = keys
        self._clock = clock
        self._logins = FairRunner("lading-login", LOGINS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        request = Request(scope, receive)
        # names may have a slash, which looks in the decoded path like one between two names
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        # "OPTIONS *" has a path without a slash
        parts = [unquote(part) for part in raw.partition(b"?")[0].decode("latin-1").split("/")[1:]] or [""]
        try:
            response = await self._respond(request, parts)
        except Unreachable as error:
            response = refuse(503, "ServiceUnavailableException", str(error))
        except Refusal as error:
            if error.reason is Reason.STOPPING:
                await refuse(503, "ServiceUnavailableException", str(error))(scope, receive, send)
                return
            is_login = error.reason in (Reason.UNAUTHENTICATED, Reason.INVALID_TOKEN)
            response = (
                refuse(401, "NotAuthorizedException", LOGIN_NEEDED)
                if is_login
                else refuse(403, "ForbiddenException", str(error))
            )
        except LadingError as error:
            response = refuse(400, "BadRequestException", str(error))
        await response(scope, receive, send)

    async def _respond(self, request: Request, parts: list[str]) -> Response:
        if parts[0] == BUCKET:
            return await self._respond_object(request, parts[1:])
        if self._tables.store is not None and parts[0] == self._tables.store.bucket:
            return await self._respond_stored(request, self._tables.store, "/".join(parts[1:]))
        if parts[0] != "v1":
            text = f"the Iceberg catalog of {self._callers.own.url}; engines take this address, without a path"
            return respond({"about": f"Lading: {text}"}, 200 if parts == [""] else 404)
        if parts[1:] == ["oauth", "tokens"] and request.method == "POST":
            return await self._respond_token(request)
        if request.method == "POST" and parts[-1] == "metrics":
            return Response(status_code=204)
        if request.method not in ("GET", "HEAD"):
            return refuse(403, "ForbiddenException", READ_ONLY)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        caller = self._callers.find(token.strip() if scheme.lower() == "bearer" else None)
        source = None if caller is None else self._callers.source_of(caller)
        if caller is None or source is None:
            return refuse(401, "NotAuthorizedException", LOGIN_NEEDED)
        if parts[1:] == ["config"]:
            return respond({"defaults": {}, "overrides": {"prefix": PREFIX}, "endpoints": READS})
        if self._callers.has_accepted(caller):
            return await run_in_threadpool(self._respond_catalog, request, parts[1:], caller, source)
        try:
            response = await self._log_in(request, partial(self._respond_catalog, request, parts[1:], caller, source))
        except LadingError:
            self._callers.forget(caller)
            raise
        self._callers.accept(caller)
        return response

    async def _log_in(self, request: Request, work: Callable[[], T]) -> T:
        """Return the result of work that logs in at the source, in turns by address. Raises Refusal if too much waits.

        Callers that the source has taken do not wait for it.
        """
        address = network_of(request.client.host) if request.client else ""
        return await self._logins.run(address, call_once(work))

    async def _respond_token(self, request: Request) -> Response:
        """Trade a name and a password, or a token that this process made, for a token.

        RFC 6749 section 4.4 (client credentials) and RFC 8693 (token exchange, by which Iceberg's Java client renews).
        """
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > FORM_BYTES_MAX:
                return respond({"error": "invalid_request", "error_description": "the form is too long"}, 400)
        form = dict(parse_qsl(body.decode("utf-8", "replace")))
        if form.get("grant_type") == TOKEN_EXCHANGE:
            renewed = self._callers.renew(form.get("subject_token", ""))
            if renewed is None:
                text = "the token was not made here, or before a restart, or too long ago; send a name and a password"
                return respond({"error": "invalid_grant", "error_description": text}, 400)
            return _respond_new_token(renewed)
        name, password = form.get("client_id", ""), form.get("client_secret", "")
        if form.get("grant_type") != "client_credentials":
            text = "send grant_type=client_credentials with client_id and client_secret"
            return respond({"error": "unsupported_grant_type", "error_description": text}, 400)
        if self._callers.has_accepted_pair(name, password):
            token = await run_in_threadpool(self._callers.log_in, name, password)
        else:
            token = await self._log_in(request, partial(self._callers.log_in, name, password))
        if token is None:
            text = "the name or the password is wrong; send those of a user of the source"
            return respond({"error": "invalid_client", "error_description": text}, 401)
        return _respond_new_token(token)

    def _respond_catalog(self, request: Request, parts: list[str], caller: str, source: TableSource) -> Response:
        if parts[1:2] == ["namespaces"] and parts[0] != PREFIX:
            text = f"the catalog has no prefix {parts[0]!r}; use the one of /v1/config, which is {PREFIX!r}"
            return refuse(404, "NotFoundException", text)
        match parts:
            case [_, "namespaces"]:
                names = {table.namespace for table in source.list_tables()}
                is_top = not request.query_params.get("parent")
                return respond({"namespaces": [[name] for name in sorted(names)] if is_top else []})
            case [_, "namespaces", namespace]:
                if not any(table.namespace == namespace for table in source.list_tables()):
                    return refuse(404, "NoSuchNamespaceException", f"namespace {namespace!r} does not exist; list them")
                return respond({"namespace": [namespace], "properties": {}})
            case [_, "namespaces", namespace, "tables"]:
                found = [table for table in source.list_tables() if table.namespace == namespace]
                return respond({"identifiers": list(map(describe_table, found))})
            case [_, "namespaces", namespace, "tables", name, *credentials] if credentials in ([], ["credentials"]):
                table = source.find_table(namespace, name)
                if table is None:
                    text = f"table {namespace}.{name} does not exist; list the tables"
                    return refuse(404, "NoSuchTableException", text)
                if credentials:
                    source.require_readable(table)
                    keys = self._vend(request, table, caller, self._tables.open_table(table).uuid)
                    return respond({"storage-credentials": keys}, headers=NOT_STORED)
                if request.method == "HEAD":
                    return Response(status_code=204)
                return self._respond_table(request, table, caller, source)
        return refuse(404, "NotFoundException", f"{request.url.path} does not exist")

    def _respond_table(self, request: Request, table: TopicTable, caller: str, source: TableSource) -> Response:
        loaded = self._tables.load(source, table)
        keys = self._vend(request, table, caller, loaded.uuid)
        store = self._tables.store
        config = keys[0]["config"]
        if store is not None:
            # DuckDB heeds prefixes if there is more than one
            keys.insert(0, {"prefix": f"{store.root}/{loaded.uuid}/", "config": store.engines or config})
        # some engines read the keys in the one place, some in the other
        document = {
            "metadata-location": loaded.location, "config": config, "storage-credentials": keys,
        }  # fmt: skip
        body = b'{"metadata":' + loaded.text + b"," + json.dumps(document, separators=(",", ":")).encode()[1:]
        return Response(body, headers=NOT_STORED, media_type="application/json")

    def _vend(self, request: Request, table: TopicTable, caller: str, uuid: str) -> list[dict[str, Any]]:
        """Return the keys of a table, in the form of the specification (StorageCredential)."""
        key = self._keys.vend(Grant(caller, uuid), self._clock())
        namespace, name = quote(table.namespace, safe=""), quote(table.name, safe="")
        renewal = f"v1/{PREFIX}/namespaces/{namespace}/tables/{name}/credentials"
        # the slash at the end is for ClickHouse, which otherwise asks for the bucket twice over
        keys = {
            "s3.endpoint": f"{request.url.scheme}://{request.headers.get('host', '')}/",
            "s3.access-key-id": key.access_key_id,
            "s3.secret-access-key": key.secret_access_key,
            "s3.session-token": key.session_token,
            "s3.path-style-access": "true",
            "s3.region": REGION,
            # Arrow's client gives up after 3 seconds without a byte; the first query of a large table takes longer
            "s3.request-timeout": str(MAKING_S),
            "client.region": REGION,
            # Iceberg's Java client asks there for another key, five minutes before this one ends
            "s3.session-token-expires-at-ms": str(key.expires_s * 1_000),
            "client.refresh-credentials-endpoint": renewal,
            # the same by the name under which its S3FileIO looks for it (1.12)
            "credentials.uri": renewal,
        }
        return [{"prefix": f"s3://{BUCKET}/{uuid}/", "config": keys}]

    async def _respond_object(self, request: Request, parts: list[str]) -> Response:
        if request.method not in ("GET", "HEAD"):
            return _refuse_object(403, "AccessDenied", READ_ONLY)
        if len(parts) != 3:
            return _refuse_object(403, "AccessDenied", "objects are not listed; ask the catalog for tables")
        uuid, name = parts[0], "/".join(parts[1:])
        source = await run_in_threadpool(self._find_reader, request, uuid)
        if source is None:
            return _refuse_object(403, "AccessDenied", NO_KEY)
        waiting = await run_in_threadpool(self._tables.open_object, source, uuid, name)
        if waiting is None:
            return _refuse_object(404, "NoSuchKey", "the object does not exist; load the table again")
        # others may wait for it too, so that the end of this request does not cancel it
        return respond_range(request, name, await asyncio.shield(asyncio.wrap_future(waiting)))

    async def _respond_stored(self, request: Request, store: FileStore, key: str) -> Response:
        """Return an object of the store to engines that do not reach the store themselves."""
        if request.method not in ("GET", "HEAD"):
            return _refuse_object(403, "AccessDenied", READ_ONLY)
        uuid, name = store.parse_key(key) or ("", "")
        if await run_in_threadpool(self._find_reader, request, uuid) is None:
            return _refuse_object(403, "AccessDenied", NO_KEY)
        waiting = self._tables.open_stored(uuid, name)
        if waiting is None:
            return _refuse_object(404, "NoSuchKey", "the object does not exist; load the table again")
        try:
            # reading it waits for the store
            return await run_in_threadpool(respond_range, request, name, await asyncio.wrap_future(waiting))
        except FileNotFoundError:
            self._tables.forget_stored(uuid, name)
            return _refuse_object(404, "NoSuchKey", "the object was deleted in the store; load the table again")
        except LadingError as error:
            return _refuse_object(503, "SlowDown", str(error))

    def _find_reader(self, request: Request, uuid: str) -> TableSource | None:
        """Return the source with the rights of a request's caller; None if the caller may not read the table."""
        if "authorization" in request.headers:
            path = request.scope["raw_path"].partition(b"?")[0].decode("latin-1")
            query = request.scope["query_string"].decode("latin-1")
            grant = self._keys.find_grant(request.method, path, query, request.headers, self._clock())
            if grant is not None:
                return self._callers.source_of(grant.caller) if grant.table == uuid else None
            # a key that ended, as in a stream of hours, or of this process before it was started again: counts as none
        caller = self._callers.find(None)
        source = None if caller is None else self._callers.source_of(caller)
        try:
            table = (
                None
                if source is None
                else source.find_uuid(self._tables.find_topic_uuid(uuid), self._tables.find_opened(uuid))
            )
            if source is None or table is None:
                return None
            source.require_readable(table)
        except Unreachable:
            raise
        except (Refusal, RemoteError):
            # the source has users, and nobody logged in
            return None
        return source


def _respond_new_token(token: str) -> Response:
    issued = "urn:ietf:params:oauth:token-type:access_token"
    document = {"access_token": token, "token_type": "bearer", "expires_in": LIFETIME_S, "issued_token_type": issued}
    return respond(document, headers=NOT_STORED)


def _refuse_object(status: int, code: str, text: str) -> Response:
    return Response(f"<Error><Code>{code}</Code><Message>{text}</Message></Error>", status, media_type=_XML)


def respond_range(request: Request, key: str, found: RenderedFile) -> Response:
    """Return an object, or the bytes of it that a request asks for."""
    size = found.facts.size_bytes
    headers = {
        "accept-ranges": "bytes",
        # an object never changes, so that its name is as good as a digest
        "etag": f'"{key.rpartition("/")[2]}"',
        "last-modified": "Thu, 01 Jan 2026 00:00:00 GMT",
        "cache-control": "max-age=31536000, immutable",
    }
    first, end, status = 0, size, 200
    if wanted := request.headers.get("range"):
        span = parse_range(wanted, size)
        if span is None:
            return Response(status_code=416, headers={"content-range": f"bytes */{size}"})
        first, end = span
        status, headers["content-range"] = 206, f"bytes {first}-{end - 1}/{size}"
    headers["content-length"] = str(end - first)
    kind = "application/octet-stream"
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers, media_type=kind)
    try:
        file = found.open()
    except OSError:
        return _refuse_object(503, "SlowDown", "the file was deleted a moment ago; ask for it again")
    pieces = _read_pieces(file, first, end)
    if end - first <= PIECE_BYTES:
        return Response(b"".join(pieces), status, headers, kind)
    return StreamingResponse(pieces, status, headers, kind)


def _read_pieces(file: BinaryIO, first: int, end: int) -> Iterator[bytes]:
    with file:
        file.seek(first)
        for at in range(first, end, PIECE_BYTES):
            yield file.read(min(PIECE_BYTES, end - at))


def parse_range(text: str, size: int) -> tuple[int, int] | None:
    """Return the bytes [first, end) of a Range header: ``bytes=a-b``, ``a-`` or ``-n``; None beyond the end."""
    unit, _, span = text.partition("=")
    first, dash, last = span.strip().partition("-")
    if unit.strip() != "bytes" or not dash or not all(part.isdecimal() or not part for part in (first, last)):
        return None
    if not first:
        count = int(last[:20] or 0)
        return (max(0, size - count), size) if count and size else None
    begin, end = int(first[:20]), min(size, int(last[:20]) + 1) if last else size
    return (begin, end) if begin < end else None
