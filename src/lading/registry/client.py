"""A client of any registry with Confluent's API: ours, Confluent's, Apicurio.

A schema never changes under its id or GUID, so each is fetched once: kept in memory, and in a directory of JSON files
if there is one, so that a restart does not need the registry. A schema that does not exist is asked for again after a
few seconds, as it may be registered meanwhile.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import tempfile
import textwrap
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from ..model.errors import LadingError, RemoteError, SettingError, Unreachable
from ..payloads.identity import SchemaIdentity
from ..runtime.read_deadline import DeadlineSocket, read_content
from ..schemas.formats import parse_schema
from ..schemas.parsed import InvalidSchema, ParsedSchema, Reference, ResolvedReference
from .sized_cache import SizedCache

TIMEOUT_S: Final = 10.0
"""For the whole response to a request, with more time for more bytes (``ReadDeadline``)."""
SCHEMA_S: Final = 60.0
"""After this time no further reference of a schema is requested."""
ATTEMPTS: Final = 3
PAUSE_S: Final = 0.2
"""Pause before the second attempt of a request; it doubles before each further one."""
MISSING_S: Final = 5.0
"""How long a schema that did not exist is not asked for again."""
MISSING_MAX: Final = 10_000
"""At most this many missing schemas, or schemas with lost references, are remembered for that time."""
MISSING_REQUESTS_MAX: Final = 200
"""At most this many requests for missing schemas within MISSING_S; further unknown ids are not looked up until it is
over."""
RESPONSE_BYTES_MAX: Final = 32 << 20
REFERENCES_MAX: Final = 1000
SCHEMA_CHARACTERS_MAX: Final = 20 << 20
"""The limit of a schema with all that it refers to; that of our registry too."""
KEPT_CHARACTERS_MAX: Final = 32 << 20
"""Schemas with this many characters in sum are kept in memory: the senders of messages choose their ids."""
KEPT_VERSIONS_MAX: Final = 200_000
"""Identities with this many versions in sum are kept."""
ERROR_CHARACTERS_MAX: Final = 500
ID_MAX: Final = (1 << 31) - 1
"""Ids are signed numbers of 32 bits."""
_RETRIED: Final = frozenset({408, 429, 500, 502, 503, 504})
_LOGIN_STATUSES: Final = ("401", "403")
"""Error codes that begin with these are about the login, not about the schema."""
_SCHEMA_MISSING: Final = 40403
_STATUS_MISSING: Final = 404
_SUBJECT_MISSING: Final = (40401, 40402, _STATUS_MISSING)
_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"


class SchemaMissing(RemoteError):
    """The registry has no schema with this id or GUID; somebody may register it later."""


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    """The address of a registry, and the login there. Secrets are given by reference: a file, or a variable of the
    environment."""

    url: str
    user: str | None = None
    password_file: Path | None = None
    token_file: Path | None = None
    password_variable: str | None = None
    token_variable: str | None = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    """The certificate of this client, followed by others that signed it, and maybe its key."""
    key_file: Path | None = None

    def authorization(self) -> str | None:
        """Return the header Authorization, with secrets as they are now. Raises SettingError."""
        token = _read_secret(self.token_file, self.token_variable)
        if token is not None:
            return f"Bearer {token}"
        password = _read_secret(self.password_file, self.password_variable)
        if self.user is None:
            return None
        if password is None:
            raise SettingError(f"registry {self.url}: a user without a password; name a file or a variable that has it")
        return "Basic " + b64encode(f"{self.user}:{password}".encode()).decode()


def _read_secret(file: Path | None, variable: str | None) -> str | None:
    if file is not None:
        try:
            return file.read_text().strip()
        except OSError as error:
            raise SettingError(
                f"registry: secret in {file} cannot be read: {error.strerror}; name another file"
            ) from None
    if variable is not None:
        value = os.environ.get(variable)
        if value is None:
            raise SettingError(f"registry: the environment has no variable {variable}; set it")
        return value
    return None


@dataclass(frozen=True, slots=True)
class FetchedSchema:
    """A schema as a registry returned it, with all that it refers to."""

    kind: str
    text: str
    references: tuple[Reference, ...]
    resolved: tuple[ResolvedReference, ...]
    _parsed: list[ParsedSchema] = field(default_factory=list, compare=False, repr=False)

    @property
    def size_characters(self) -> int:
        """The size of its text, and of all that it refers to."""
        return len(self.text) + sum(len(one.text) for one in self.resolved)

    def parse(self) -> ParsedSchema:
        """Return the schema, parsed, which is kept with it; raises InvalidSchema."""
        if not self._parsed:
            self._parsed.append(parse_schema(self.kind, self.text, self.resolved, is_new=False))
        return self._parsed[0]


class RegistryClient:
    """Schemas of one registry. Safe to use from several threads; a schema is fetched by one of them."""

    def __init__(
        self,
        address: RegistryAddress,
        cache: Path | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """``cache`` is a directory for schemas, made when it is needed. Raises SettingError for an invalid URL."""
        parts = urlsplit(address.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingError(f"registry {address.url!r}: invalid URL; write http://host:8081 or https://…")
        self._address, self._parts = address, parts
        self._directory = None if cache is None else cache / sha256(address.url.rstrip("/").encode()).hexdigest()[:16]
        self._clock, self._pause = clock, pause
        self._lock = threading.Lock()
        self._known = SizedCache[FetchedSchema](KEPT_CHARACTERS_MAX)
        self._identities = SizedCache[SchemaIdentity](KEPT_VERSIONS_MAX)
        self._missing: dict[str, float] = {}
        """The time until which a missing schema is not requested again, by path."""
        self._missing_until_s, self._missing_requests = 0.0, 0
        """The end of the time in which requests for missing schemas are counted, and how many there were."""
        self._invalid: dict[str, tuple[float, str]] = {}
        """The time until which a schema with lost references is not requested again, and the reason, by path."""
        self._connection: http.client.HTTPConnection | None = None

    def schema_by_id(self, schema_id: int) -> FetchedSchema:
        """Return the schema with an id. Raises SchemaMissing, InvalidSchema, Unreachable or RemoteError."""
        return self._find_schema(f"schemas/ids/{schema_id}")

    def schema_by_guid(self, guid: str) -> FetchedSchema:
        """Return the schema with a GUID. Raises as ``schema_by_id``."""
        return self._find_schema(f"schemas/guids/{quote(guid, safe='')}")

    def identify(self, name: int | str) -> SchemaIdentity:
        """Return id, GUID and versions by subject of the schema with an id or GUID, as far as the registry knows them.

        They are kept: the versions are those of the first call. Raises SchemaMissing, Unreachable or RemoteError.
        """
        path = f"schemas/ids/{name}" if isinstance(name, int) else f"schemas/guids/{quote(name, safe='')}"
        known = self._identities.get(path)
        if known is not None:
            return known
        with self._lock:
            known = self._identities.get(path)
            if known is not None:
                return known
            identity = self._fetch_identity(name, path)
            self._identities.add(path, identity, 1 + len(identity.versions))
            return identity

    def _fetch_identity(self, name: int | str, path: str) -> SchemaIdentity:
        self._refuse_missing(path)
        try:
            document = self._ask("GET", path)
            schema_id = name if isinstance(name, int) else document.get("id")
            versions = [] if schema_id is None else self._ask("GET", f"schemas/ids/{schema_id}/versions")
        except RemoteError as error:
            raise self._explain_refusal(path, error) from None
        try:
            found = tuple((str(one["subject"]), int(one["version"])) for one in versions)
            return SchemaIdentity(schema_id, document.get("guid") if isinstance(name, int) else name, found)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise RemoteError(
                f"registry {self._address.url}: a response has invalid versions; is this the URL of a registry?"
            ) from None

    def register(self, subject: str, kind: str, text: str, references: Sequence[Reference] = ()) -> int:
        """Register a schema in a subject, unless the subject has it, and return its id."""
        body: dict[str, Any] = {"schema": text}
        if kind != "AVRO":
            body["schemaType"] = kind
        if references:
            body["references"] = [reference._asdict() for reference in references]
        with self._lock:
            found = self._ask("POST", f"subjects/{quote(subject, safe='')}/versions", body)
        return self._read_id(found)

    def versions(self, subject: str) -> list[int]:
        """Return the versions of a subject. Raises RemoteError if it does not exist."""
        with self._lock:
            found = self._ask("GET", f"subjects/{quote(subject, safe='')}/versions")
        if not isinstance(found, list) or not all(type(version) is int for version in found):
            raise self._wrong_response_error("no list of versions")
        return found

    def latest_id(self, subject: str) -> int:
        """Return the id of the newest schema of a subject."""
        with self._lock:
            found = self._ask("GET", f"subjects/{quote(subject, safe='')}/versions/latest")
        return self._read_id(found)

    def find_newest(self, subject: str) -> tuple[int, int] | None:
        """Return the newest version of a subject, and its id; None if the subject does not exist."""
        try:
            with self._lock:
                found = self._ask("GET", f"subjects/{quote(subject, safe='')}/versions/latest")
        except RemoteError as error:
            if error.code in _SUBJECT_MISSING:
                return None
            raise
        schema_id = self._read_id(found)
        if type(found.get("version")) is not int:
            raise self._wrong_response_error("no version")
        return found["version"], schema_id

    def _read_id(self, document: Any) -> int:
        schema_id = document.get("id") if isinstance(document, dict) else None
        if type(schema_id) is not int or not 0 <= schema_id <= ID_MAX:
            raise self._wrong_response_error("no id of a schema")
        return schema_id

    def _wrong_response_error(self, problem: str) -> RemoteError:
        return RemoteError(f"registry {self._address.url}: a response has {problem}; is this the URL of a registry?")

    def close(self) -> None:
        """Close the connection; the client can be used again."""
        with self._lock:
            self._disconnect()

    # -- schemas

    def _find_schema(self, path: str) -> FetchedSchema:
        # without the lock, which the fetch of another schema holds
        known = self._known.get(path)
        if known is not None:
            return known
        with self._lock:
            found = self._known.get(path) or self._load(path)
            if found is None:
                self._refuse_missing(path)
                if path in self._invalid and self._invalid[path][0] > self._clock():
                    raise InvalidSchema(self._invalid[path][1])
                try:
                    found = self._fetch(path)
                except InvalidSchema as error:
                    # otherwise each batch would fetch the schema and its references again
                    self._invalid.pop(next(iter(self._invalid)) if len(self._invalid) >= MISSING_MAX else path, None)
                    self._invalid[path] = self._clock() + MISSING_S, str(error)
                    raise
                self._store(path, found)
            self._known.add(path, found, found.size_characters)
            return found

    def _refuse_missing(self, path: str) -> None:
        """Raise SchemaMissing for a schema that did not exist shortly ago, or after too many that did not."""
        now_s = self._clock()
        if now_s >= self._missing_until_s:
            self._missing_until_s, self._missing_requests = now_s + MISSING_S, 0
        if self._missing.get(path, 0.0) > now_s or self._missing_requests >= MISSING_REQUESTS_MAX:
            raise self._missing_error(path)

    def _missing_error(self, path: str) -> SchemaMissing:
        return SchemaMissing(
            f"registry {self._address.url}: {path} does not exist; register the schema, or name another registry",
            code=_SCHEMA_MISSING,
        )

    def _fetch(self, path: str) -> FetchedSchema:
        end_s = self._clock() + SCHEMA_S
        try:
            document = self._ask("GET", path)
        except RemoteError as error:
            raise self._explain_refusal(path, error) from None
        kind, text = _kind_of(document), _text_of(document, self._address.url)
        resolved: dict[str, ResolvedReference] = {}
        try:
            references = _references_of(document, self._address.url)
            self._resolve(references, resolved, set(), end_s, SCHEMA_CHARACTERS_MAX - len(text))
        except Unreachable:
            raise
        except RemoteError as error:
            if str(error.code)[:3] in _LOGIN_STATUSES:
                raise
            # other schemas of the topic may be good: only the messages with this id are at fault
            raise InvalidSchema(str(error)) from None
        except RecursionError:
            raise InvalidSchema(
                f"registry {self._address.url}: {path} has too many references in one another"
            ) from None
        return FetchedSchema(kind, text, references, tuple(resolved.values()))

    def _explain_refusal(self, path: str, error: RemoteError) -> RemoteError:
        """Return the error of a request for a schema: SchemaMissing only if a registry says so.

        Raises Unreachable.
        """
        if error.code == _STATUS_MISSING and not isinstance(error, Unreachable):
            # a gateway without a route responds like this, and Confluent's registry at a wrong path
            try:
                self._ask("GET", "schemas/types")
            except Unreachable:
                raise
            except RemoteError:
                return RemoteError(
                    f"registry {self._address.url}: responded with status 404 to every request; is this the URL of a "
                    "registry?"
                )
        elif error.code != _SCHEMA_MISSING:
            return error
        self._note_missing(path)
        return self._missing_error(path)

    def _note_missing(self, path: str) -> None:
        now_s = self._clock()
        self._missing_requests += 1
        if len(self._missing) >= MISSING_MAX:
            self._missing = {path: until_s for path, until_s in self._missing.items() if until_s > now_s}
        # remove it first: the schema that was noted last is forgotten last
        self._missing.pop(path, None)
        if len(self._missing) >= MISSING_MAX:
            del self._missing[next(iter(self._missing))]
        self._missing[path] = now_s + MISSING_S

    def _resolve(
        self,
        references: Sequence[Reference],
        resolved: dict[str, ResolvedReference],
        met: set[str],
        end_s: float,
        left_characters: int,
    ) -> int:
        """Add the referenced schemas, each after those that it refers to itself.

        Return how many characters are left of ``left_characters``. Raises Unreachable after ``end_s``.
        """
        for reference in references:
            if reference.name in met:
                continue
            met.add(reference.name)
            if len(met) > REFERENCES_MAX:
                raise RemoteError(f"registry {self._address.url}: a schema refers to more than {REFERENCES_MAX} others")
            path = f"subjects/{quote(reference.subject, safe='')}/versions/{reference.version}?deleted=true"
            if self._clock() > end_s:
                raise Unreachable(
                    f"registry {self._address.url}: a schema with all that it refers to is not complete after "
                    f"{SCHEMA_S:g} s; try again later"
                )
            document = self._ask("GET", path)
            text = _text_of(document, self._address.url)
            left_characters -= len(text)
            if left_characters < 0:
                raise RemoteError(
                    f"registry {self._address.url}: a schema with all that it refers to has more than "
                    f"{SCHEMA_CHARACTERS_MAX} characters"
                )
            inner = _references_of(document, self._address.url)
            left_characters = self._resolve(inner, resolved, met, end_s, left_characters)
            resolved[reference.name] = ResolvedReference(reference.name, text, reference)
        return left_characters

    # -- on disk

    def _file_of(self, path: str) -> Path | None:
        return None if self._directory is None else self._directory / f"{path.replace('/', '-')}.json"

    def _load(self, path: str) -> FetchedSchema | None:
        file = self._file_of(path)
        if file is None:
            return None
        try:
            document = json.loads(file.read_bytes())
            resolved = tuple(
                ResolvedReference(one["name"], one["text"], Reference(**one["reference"]))
                for one in document["resolved"]
            )
            references = tuple(Reference(**one) for one in document["references"])
            return FetchedSchema(document["kind"], document["text"], references, resolved)
        except (OSError, ValueError, KeyError, TypeError):
            # a missing or damaged file is fetched again
            return None

    def _store(self, path: str, schema: FetchedSchema) -> None:
        file = self._file_of(path)
        if file is None:
            return
        document = {
            "kind": schema.kind,
            "text": schema.text,
            "references": [reference._asdict() for reference in schema.references],
            "resolved": [
                {"name": one.name, "text": one.text, "reference": one.reference._asdict()}
                for one in schema.resolved
                if one.reference is not None
            ],
        }
        # if the cache cannot be written, the schema is requested again after a restart; nothing else is lost
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=file.parent, suffix=".tmp", delete=False) as target:
                json.dump(document, target)
            Path(target.name).replace(file)

    # -- requests

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the document of a response, after a few attempts. Raises Unreachable or RemoteError."""
        problem: LadingError | None = None
        for attempt in range(ATTEMPTS):
            if attempt:
                self._pause(PAUSE_S * 2 ** (attempt - 1))
            try:
                status, data = self._send(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                self._disconnect()
                reason = error.strerror if isinstance(error, OSError) else str(error)
                problem = Unreachable(
                    f"registry {self._address.url}: cannot be reached: {reason or error}; is it running?"
                )
                continue
            document = _parse_document(data)
            if status == 200 and document is not None:
                return document
            problem = self._response_error(status, document)
            if status not in _RETRIED and status != 200:
                break
        assert problem is not None
        raise problem

    def _response_error(self, status: int, document: Any) -> LadingError:
        where = f"registry {self._address.url}"
        if status in _RETRIED:
            return Unreachable(f"{where}: responded with status {status}; try again later")
        if not isinstance(document, dict) or "message" not in document:
            return RemoteError(f"{where}: responded with status {status} and no JSON; is this the URL of a registry?")
        code = document.get("error_code")
        message = textwrap.shorten(str(document["message"])[: 2 * ERROR_CHARACTERS_MAX], ERROR_CHARACTERS_MAX)
        return RemoteError(f"{where}: {message}", code=code if isinstance(code, int) else status)

    def _send(self, method: str, path: str, body: Any) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._connect()
        headers = {"Accept": f"{_MEDIA_TYPE}, application/json", "Content-Type": _MEDIA_TYPE}
        authorization = self._address.authorization()
        if authorization is not None:
            headers["Authorization"] = authorization
        data = None if body is None else json.dumps(body).encode()
        target = f"{self._parts.path.rstrip('/')}/{path}"
        connection = self._connection
        if connection.sock is None:
            connection.connect()
            opened: Any = connection.sock
            connection.sock = DeadlineSocket(opened, TIMEOUT_S)
        connection.request(method, target, data, headers)
        response = connection.getresponse()
        content = read_content(response, RESPONSE_BYTES_MAX)
        if content is None:
            self._disconnect()
            raise http.client.HTTPException(f"a response of more than {RESPONSE_BYTES_MAX} bytes")
        return response.status, content

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "http":
            return http.client.HTTPConnection(host, port or 8081, timeout=TIMEOUT_S)
        try:
            context = ssl.create_default_context(cafile=self._address.ca_file)
        except OSError as error:
            raise SettingError(
                f"registry: {self._address.ca_file} is not a file of certificates: {error}; name a PEM file"
            ) from None
        certificate, key = self._address.certificate_file, self._address.key_file
        if certificate is not None:
            try:
                context.load_cert_chain(certificate, key, _refuse_password)
            except (OSError, ValueError) as error:
                raise SettingError(
                    f"registry: the certificate {certificate} cannot be used: {error}; name a PEM file, with its key "
                    "in it or in registry_key_file"
                ) from None
        return http.client.HTTPSConnection(host, port or 443, timeout=TIMEOUT_S, context=context)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _refuse_password() -> str:
    # OpenSSL would ask for the password at the terminal
    raise ValueError("its key has a password")


def _parse_document(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _references_of(document: Any, url: str) -> tuple[Reference, ...]:
    try:
        return tuple(
            Reference(str(one["name"]), str(one["subject"]), int(one["version"]))
            for one in document.get("references") or ()
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise RemoteError(
            f"registry {url}: a response has invalid references; is this the URL of a registry?"
        ) from None


def _text_of(document: Any, url: str) -> str:
    text = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(text, str):
        raise RemoteError(f"registry {url}: a response has no schema; is this the URL of a registry?")
    return text


def _kind_of(document: Any) -> str:
    kind = document.get("schemaType") if isinstance(document, dict) else None
    return kind if isinstance(kind, str) else "AVRO"
