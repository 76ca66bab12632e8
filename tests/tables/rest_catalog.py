"""A catalog of Iceberg's REST API (apache/iceberg, open-api/rest-catalog-open-api.yaml), over pyiceberg's SQL catalog.

It has what pyiceberg's client of that API asks for, so that requests, requirements and their refusals travel over HTTP.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, Table

STATUS = {
    NoSuchTableError: 404, NoSuchNamespaceError: 404, TableAlreadyExistsError: 409, NamespaceAlreadyExistsError: 409,
    CommitFailedException: 409,
}  # fmt: skip


class RestCatalog:
    """The catalog behind the server, and what goes wrong with it."""

    def __init__(self, place: Path) -> None:
        self.catalog = SqlCatalog("rest", uri=f"sqlite:///{place}/rest.db", warehouse=f"file://{place}/warehouse")
        self.requests: list[str] = []
        self.lost_responses = 0
        """Commits that are made from now on, and whose response is a fault of the server."""
        self.requests_left: int | None = None
        """Requests that are responded to from now on; later ones have their connections closed. None for all."""
        self._lock = threading.Lock()

    def is_away(self) -> bool:
        """Return whether the next request finds nobody."""
        with self._lock:
            if self.requests_left is None:
                return False
            self.requests_left -= 1
            return self.requests_left < 0

    def handle(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """Return the status and the document of a response."""
        self.requests.append(f"{method} {path}")
        with self._lock:
            try:
                return 200, self._respond(method, [unquote(part) for part in path.split("/")[2:]], body)
            except tuple(STATUS) as error:
                status = STATUS[type(error)]
                return status, {"error": {"message": str(error), "type": type(error).__name__, "code": status}}
            except TimeoutError as error:
                return 504, {"error": {"message": str(error), "type": "CommitStateUnknown", "code": 504}}

    def _respond(self, method: str, parts: list[str], body: bytes) -> Any:
        match (method, *parts):
            case ("GET", "config"):
                return {"defaults": {}, "overrides": {}}
            case ("POST", "namespaces"):
                namespace = json.loads(body)["namespace"]
                self.catalog.create_namespace(tuple(namespace))
                return {"namespace": namespace, "properties": {}}
            case ("GET" | "HEAD", "namespaces", name):
                self.catalog.load_namespace_properties(name)
                return {"namespace": [name], "properties": {}}
            case ("POST", "namespaces", name, "tables"):
                wanted = CreateTableRequest.model_validate_json(body)
                spec = wanted.partition_spec or UNPARTITIONED_PARTITION_SPEC
                made = self.catalog.create_table(
                    (name, wanted.name), wanted.table_schema, wanted.location, spec, properties=wanted.properties
                )
                return self._describe(made)
            case ("GET" | "HEAD", "namespaces", name, "tables", table):
                return self._describe(self.catalog.load_table((name, table)))
            case ("POST", "namespaces", name, "tables", table):
                request = CommitTableRequest.model_validate_json(body)
                self.catalog.commit_table(
                    self.catalog.load_table((name, table)), request.requirements, request.updates
                )  # fmt: skip
                if self.lost_responses:
                    self.lost_responses -= 1
                    raise TimeoutError("the commit took too long")
                return self._describe(self.catalog.load_table((name, table)))
            case ("DELETE", "namespaces", name, "tables", table):
                self.catalog.drop_table((name, table))
                return {}
        raise NoSuchTableError(f"no such thing: {method} {'/'.join(parts)}")

    @staticmethod
    def _describe(table: Table) -> Any:
        return {
            "metadata-location": table.metadata_location, "metadata": json.loads(table.metadata.model_dump_json()),
            "config": {},
        }  # fmt: skip


@contextmanager
def serve_rest_catalog(place: Path) -> Iterator[tuple[str, RestCatalog]]:
    """Serve a catalog on a free port; give its URI, and the catalog."""
    served = RestCatalog(place)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if served.is_away():
                self.close_connection = True
                return
            status, document = served.handle(self.command, urlsplit(self.path).path, body)
            text = b"" if self.command == "HEAD" else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_HEAD = do_DELETE = respond

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", served
        finally:
            server.shutdown()
