"""One request over HTTP/1.1 from the event loop, whose caller bounds the time for all of it by ``asyncio.timeout``.

http.client and urllib bound each read alone: a server that sends a byte now and then keeps a thread for as long as it
likes. Here the end of the time closes the connection, whatever is being waited for.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final
from urllib.parse import urlsplit

import httptools

HEAD_BYTES_MAX: Final = 64 << 10
_READ_BYTES: Final = 64 << 10


async def fetch_document(
    url: str, bytes_max: int, *, form: bytes | None = None, authorization: str | None = None
) -> bytes:
    """Return the body of the response to a GET, or to a POST of a ``form``.

    Raises OSError if no complete response with status 200 arrives (redirects are not followed: only the address of the
    settings is trusted), ValueError if its body is longer than ``bytes_max``.
    """
    parts = urlsplit(url)
    is_https = parts.scheme == "https"
    # reading the system's certificates takes milliseconds
    context = await asyncio.to_thread(ssl.create_default_context) if is_https else None
    host, port = parts.hostname or "", parts.port or (443 if is_https else 80)
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        authority = parts.netloc.rpartition("@")[2]
        lines = [
            f"{'GET' if form is None else 'POST'} {target} HTTP/1.1",
            f"Host: {authority}",
            "Accept: application/json",
            "Accept-Encoding: identity",
            "User-Agent: lading",
            "Connection: close",
        ]
        if authorization is not None:
            lines.append(f"Authorization: {authorization}")
        if form is not None:
            lines += ["Content-Type: application/x-www-form-urlencoded", f"Content-Length: {len(form)}"]
        writer.write("\r\n".join([*lines, "", ""]).encode("ascii") + (form or b""))
        return await _read_response(reader, bytes_max)
    finally:
        # not awaited: the server decides how long an orderly end of TLS takes
        writer.transport.abort()


class _Response:
    def __init__(self) -> None:
        self.body: list[bytes] = []
        self.size_bytes = 0
        self.has_head = self.is_whole = False

    def on_headers_complete(self) -> None:
        self.has_head = True

    def on_body(self, part: bytes) -> None:
        self.size_bytes += len(part)
        self.body.append(part)

    def on_message_complete(self) -> None:
        self.is_whole = True


async def _read_response(reader: asyncio.StreamReader, bytes_max: int) -> bytes:
    response = _Response()
    parser = httptools.HttpResponseParser(response)
    received_bytes = 0
    try:
        while not response.is_whole and (data := await reader.read(_READ_BYTES)):
            received_bytes += len(data)
            parser.feed_data(data)
            if response.has_head and parser.get_status_code() != 200:
                raise OSError(f"HTTP status {parser.get_status_code()}")
            if response.size_bytes > bytes_max:
                raise ValueError(f"longer than {bytes_max} bytes")
            # chunk headers and trailers count too: tiny chunks must not make the response endless
            if received_bytes - response.size_bytes > HEAD_BYTES_MAX + response.size_bytes:
                raise ValueError(f"a head of more than {HEAD_BYTES_MAX} bytes")
    except httptools.HttpParserError as error:
        raise OSError(f"no HTTP response: {error or type(error).__name__}") from None
    if not response.has_head:
        raise OSError("no HTTP response: the server has closed the connection")
    return b"".join(response.body)
