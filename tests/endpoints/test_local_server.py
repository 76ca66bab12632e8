"""HTTP servers that are processes of their own, such as `lading tables` and the console: bounded before any login."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
import uvicorn
from starlette.responses import PlainTextResponse

from lading.endpoints.encryption.authority import make_certificate
from lading.serve.local_server import make_config

SENT_BYTES = 8 << 20


async def flood(address: tuple[str, int], tls: ssl.SSLContext | None, head: bytes, piece: bytes) -> tuple[int, bytes]:
    """Send a request that does not end. Return how much was taken before it was refused, and the response."""
    reader, writer = await asyncio.open_connection(*address, ssl=tls)
    sent_bytes = 0
    with contextlib.suppress(ConnectionError):
        writer.write(head)
        while sent_bytes < SENT_BYTES and not reader._buffer:  # type: ignore[attr-defined]
            writer.write(piece)
            await writer.drain()
            sent_bytes += len(piece)
    response = b""
    with contextlib.suppress(ConnectionError, TimeoutError):
        response = await asyncio.wait_for(reader.read(100), 10)
    writer.transport.abort()
    return sent_bytes, response


@pytest.mark.parametrize("has_tls", [False, True], ids=["http", "https"])
def test_a_head_without_an_end_takes_no_memory(tmp_path: Path, has_tls: bool) -> None:
    """60 MB of header lines, from a stranger on another machine, became 1.2 GB of `lading tables`."""
    server_tls = client_tls = None
    if has_tls:
        made = make_certificate("lading", ("127.0.0.1",), 1)
        (tmp_path / "server.pem").write_bytes(made.to_pem() + made.key_to_pem())
        server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server_tls.load_cert_chain(tmp_path / "server.pem")
        client_tls = ssl.create_default_context(cafile=tmp_path / "server.pem")
    config = make_config("tables", PlainTextResponse("served"), None if server_tls is None else lambda: server_tls)

    async def talk() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = uvicorn.Server(config)
            task = asyncio.create_task(server._serve([listener]))
            while not server.started:
                await asyncio.sleep(0)
            address = listener.getsockname()[:2]
            for head, piece in ((b"GET / HTTP/1.1\r\n", b"a: b\r\n" * 1_000), (b"GET /", b"a" * 6_000)):
                sent_bytes, response = await flood(address, client_tls, head, piece)
                assert sent_bytes < SENT_BYTES, "all of it was kept"
                assert b" 431 " in response or not response
            reader, writer = await asyncio.open_connection(*address, ssl=client_tls)
            writer.write(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
            assert (await reader.read()).endswith(b"served")
            writer.close()
            server.should_exit = True
            await task

    asyncio.run(talk())


PROGRAM = """
import asyncio, socket, sys
from lading.serve.local_server import serve

async def wait(scope, receive, send):
    if scope["path"] == "/tail":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
    print("asked", flush=True)
    await asyncio.Event().wait()

listener = socket.create_server(("127.0.0.1", 0))
serve("tables", wait, listener, lambda: print(listener.getsockname()[1], flush=True))
"""


@pytest.mark.parametrize("path", ["/tail", "/query"], ids=["response that has begun", "response that has not"])
def test_the_end_prints_nothing_about_requests_that_it_cuts_off(path: str) -> None:
    """`lading tables` printed uvicorn's traceback of CancelledError for each."""
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nhost: a\r\n\r\n".encode())
            assert process.stdout.readline() == "asked\n"
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
