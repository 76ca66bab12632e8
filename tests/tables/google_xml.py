"""The XML API of Google Cloud Storage, in front of fake-gcs-server, which has the JSON API and only reads by XML.

Libraries in Rust (``object_store``: obstore, deltalake, Polars) speak XML. What they write is passed on as the request
of the JSON API that does the same; objects, generations and preconditions are fake-gcs-server's, and other clients
read them there by JSON. Parts of an upload are kept here until it is complete. Requests whose token is not signed with
the service account's key are refused.

It is a process of its own, ``python -m tests.tables.google_xml PORT PUBLIC_KEY``, which prints its port; see
https://cloud.google.com/storage/docs/xml-api/reference-methods.
"""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit
from xml.etree import ElementTree

import jwt

TIMEOUT_S: Final = 20.0
ERRORS: Final = {
    401: ("AuthenticationRequired", "Authentication required."),
    404: ("NoSuchKey", "The specified key does not exist."),
    412: ("PreconditionFailed", "At least one of the pre-conditions you specified did not hold."),
}
PASSED: Final = ("content-type", "content-length", "content-range", "etag", "last-modified", "x-goog-generation")


class Front(ThreadingHTTPServer):
    """What handlers share."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int, public_key: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.port = port
        self.public_key = public_key
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.names = count(1)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients go away in tests of faults."""


class Handler(BaseHTTPRequestHandler):
    """One request after the other of a connection."""

    protocol_version = "HTTP/1.1"
    server: Front

    def setup(self) -> None:
        """Split no answer into two segments: the second would wait for the first one's acknowledgement."""
        super().setup()
        self.wfile = self.connection.makefile("wb", 1 << 16)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing."""

    def answer(self) -> None:
        """Answer any request."""
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        split = urlsplit(self.path)
        self.bucket, _, name = split.path.lstrip("/").partition("/")
        self.object, self.query = unquote(name), parse_qs(split.query, keep_blank_values=True)
        if not self._is_signed():
            self._refuse(401)
        elif self.command == "PUT" and "partNumber" in self.query:
            self.server.uploads[self.query["uploadId"][0]][int(self.query["partNumber"][0])] = body
            self._reply(200, b"", {"etag": f'"{self.query["partNumber"][0]}"'})
        elif self.command == "PUT" and (source := self.headers.get("x-goog-copy-source")):
            self._copy(*unquote(source).lstrip("/").split("/", 1))
        elif self.command == "PUT":
            self._insert(body)
        elif self.command == "POST" and "uploads" in self.query:
            self._begin_upload()
        elif self.command == "POST":
            self._end_upload()
        elif self.command == "DELETE" and "uploadId" in self.query:
            self.server.uploads.pop(self.query["uploadId"][0], None)
            self._reply(204, b"")
        else:
            self._pass_on()
        self.wfile.flush()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

    def _is_signed(self) -> bool:
        kind, _, token = self.headers.get("authorization", "").partition(" ")
        try:
            jwt.decode(token, self.server.public_key, ["RS256"], options={"verify_aud": False, "verify_exp": False})
        except jwt.PyJWTError:
            return False
        return kind == "Bearer"

    def _condition(self) -> dict[str, str]:
        generation = self.headers.get("x-goog-if-generation-match")
        return {} if generation is None else {"ifGenerationMatch": generation}

    def _insert(self, body: bytes) -> None:
        query = urlencode({"uploadType": "media", "name": self.object, **self._condition()})
        kind = {"content-type": self.headers.get("content-type") or "application/octet-stream"}
        self._reply_written(*self._ask("POST", f"/upload/storage/v1/b/{self.bucket}/o?{query}", body, kind)[:2])

    def _copy(self, bucket: str, name: str) -> None:
        path = f"/storage/v1/b/{bucket}/o/{quote(name, '')}/rewriteTo/b/{self.bucket}/o/{quote(self.object, '')}"
        status, body, _ = self._ask("POST", f"{path}?{urlencode(self._condition())}")
        self._reply_written(status, json.dumps(json.loads(body)["resource"]).encode() if status == 200 else body)

    def _begin_upload(self) -> None:
        name = f"upload-{next(self.server.names)}"
        self.server.uploads[name] = {}
        told = f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
        self._reply(200, told.encode())

    def _end_upload(self) -> None:
        parts = self.server.uploads.get(self.query["uploadId"][0], {})
        self._insert(b"".join(part for _, part in sorted(parts.items())))

    def _pass_on(self) -> None:
        status, body, headers = self._ask(self.command, self.path)
        if status >= 400:
            self._refuse(status)
        else:
            if "start-after" in self.query:
                body = _list_after(body, self.query["start-after"][0])
            self._reply(status, body, {name: value for name, value in headers if name.lower() in PASSED})

    def _ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, list[tuple[str, str]]]:
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=TIMEOUT_S)
        try:
            taken = {name: self.headers[name] for name in ("range",) if name in self.headers}
            upstream.request(method, path, body, {**taken, **(headers or {})})
            reply = upstream.getresponse()
            return reply.status, reply.read(), reply.getheaders()
        finally:
            upstream.close()

    def _reply_written(self, status: int, body: bytes) -> None:
        if status >= 400:
            self._refuse(status)
            return
        made = json.loads(body)
        tag = str(made["etag"]).strip('"')
        etag = {"etag": f'"{tag}"', "x-goog-generation": str(made["generation"])}
        told = b""
        if self.headers.get("x-goog-copy-source"):
            told = f"<CopyObjectResult><ETag>{tag}</ETag></CopyObjectResult>".encode()
        elif "uploadId" in self.query:
            told = f"<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>".encode()
        self._reply(200, told, etag)

    def _refuse(self, status: int) -> None:
        code, message = ERRORS.get(status, ("InternalError", "We encountered an internal error. Please try again."))
        if status in (404, 500) and self._ask("GET", f"/storage/v1/b/{self.bucket}")[0] == 404:
            # fake-gcs-server does not tell it in XML
            status, code, message = 404, "NoSuchBucket", "The specified bucket does not exist."
        body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
        self._reply(status, body.encode(), {"content-type": "application/xml"})

    def _reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        names = {name.lower(): value for name, value in (headers or {}).items()}
        if self.command != "HEAD" or "content-length" not in names:
            names["content-length"] = str(len(body))
        for name, value in names.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _list_after(listing: bytes, name: str) -> bytes:
    """Leave out names up to this one, which fake-gcs-server does in JSON alone."""
    root = ElementTree.fromstring(listing)
    for held in [one for one in root if one.tag.endswith("Contents")]:
        if next(str(part.text) for part in held if part.tag.endswith("Key")) <= name:
            root.remove(held)
    return ElementTree.tostring(root)


def serve(arguments: Iterable[str]) -> None:
    """Run until the process is ended."""
    port, public_key = arguments
    with Front(int(port), Path(public_key).read_text()) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever(0.05)


if __name__ == "__main__":
    serve(sys.argv[1:])
