"""A server that sends documents of another form is refused by its name, whatever it sends: it may be a hostile one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from lading.model.errors import LadingError, RemoteError
from lading.transports.lading.transport import LadingTransport
from lading.transports.nsq.lookup import Discovery
from lading.transports.open import open_transport

DOCUMENTS: dict[str, bytes] = {
    "nothing": b"",
    "a list": b"[]",
    "an object": b"{}",
    "null": b"null",
    "a number": b"1",
    "a text": b'"x"',
    "a list of numbers": b"[1]",
    "a list of objects": b"[{}]",
    "a list of lists": b"[[]]",
    "not JSON": b"not json",
    "not UTF-8": b"\xff\xfe",
    "a deep list": b"[" * 200_000,
    "a deep member": b'{"topics":' * 50_000,
    "other types": b'[{"stream":1,"topic":[],"name":{},"id":2,"partitions":3,"settings":4}]',
    "another topic": b'{"stream":1,"topic":[],"name":{},"id":"zz","partitions":[{}],"settings":4}',
    "an answer of nsqlookupd": b'{"topics":[1,{}],"producers":[{}],"partitions":{"0":1},"meta":1,"tcp_port":{}}',
    "another answer of nsqlookupd": b'{"topics":1,"producers":1,"partitions":1,"meta":1,"tcp_port":0}',
    "an old answer of nsqlookupd": b'{"status_code":200,"data":1}',
}


class OtherServer(ThreadingHTTPServer):
    """Answers every request with one document."""

    document = b""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        assert isinstance(self.server, OtherServer)
        self.send_response(200)
        self.send_header("content-length", str(len(self.server.document)))
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(self.server.document)

    do_PUT = do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[OtherServer]:
    listening = OtherServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    yield listening
    listening.shutdown()
    thread.join()
    listening.server_close()


LADING: dict[str, Callable[[LadingTransport], object]] = {
    "topics": lambda transport: transport.topics(),
    "topic": lambda transport: transport.topic("t"),
    "streams": lambda transport: transport.streams(),
    "offset": lambda transport: transport.offset_at("t", 0, 1),
    "states": lambda transport: transport.states("t", 0),
    "state counts": lambda transport: transport.state_counts("t"),
    "groups": lambda transport: transport.groups(),
    "settings": lambda transport: transport.alter_topic("t", {}),
    "read": lambda transport: transport.fetch("t", 0, 0),
}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_documents_of_another_server_than_lading_are_refused(server: OtherServer, document: str) -> None:
    """A document of 30 MB of brackets, or a topic without a name, ended ``lading mirror`` with a traceback."""
    server.document = DOCUMENTS[document]
    transport = open_transport(f"lading://127.0.0.1:{server.server_port}")
    assert isinstance(transport, LadingTransport)
    for call in LADING.values():
        with suppress(LadingError):
            call(transport)
    transport.close()


def test_a_topic_without_its_members_is_refused_with_a_remedy(server: OtherServer) -> None:
    server.document = DOCUMENTS["a list of objects"]
    transport = open_transport(f"lading://127.0.0.1:{server.server_port}")
    with pytest.raises(RemoteError, match="has no 'stream'; name the address of its admin endpoint"):
        transport.topics()
    transport.close()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_documents_of_another_server_than_nsqlookupd_are_refused(server: OtherServer, document: str) -> None:
    server.document = DOCUMENTS[document]
    for call in (Discovery.lookup, Discovery.topics, Discovery.all, lambda found: found.of_topic("t")):
        with suppress(LadingError):
            call(Discovery("127.0.0.1", server.server_port, timeout_s=20))
