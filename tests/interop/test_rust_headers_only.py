"""The first release of Iggy with headers, crate 0.0.30 in Rust, against the listener that is for it, and over HTTP."""

from __future__ import annotations

import base64
import struct
from pathlib import Path
from typing import Any

import pytest

import lading
from lading import Kind, testing
from tests.interop import rust_client

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1500)]

HEADERS = {
    "text": ("string", "žluťoučký".encode()),
    "number": ("int64", struct.pack("<q", -(2**63))),
    "flag": ("bool", b"\1"),
}
"""What the program sends with its first message."""


@pytest.fixture(scope="module")
def program(full: bool) -> Path:
    """The client, or a skip that says why there is none."""
    if not full and not rust_client.is_built("iggy_rust_headers_only"):
        pytest.skip("building a second crate takes 2 to 3 minutes of both cores: with LADING_TEST_FULL=1")
    try:
        return rust_client.build(folder="iggy_rust_headers_only")
    except rust_client.Unavailable as error:
        pytest.skip(str(error))


def headers_of(message: dict[str, Any]) -> dict[str, tuple[str, bytes]]:
    found = message["headers"] or {}
    return {key: (value["kind"], base64.b64decode(value["value"])) for key, value in found.items()}


@pytest.mark.parametrize("transport", ["tcp", "http"])
def test_what_it_sends_it_and_others_get(program: Path, transport: str) -> None:
    with testing.broker(settings={"endpoints.iggy_tcp.release": "0.0.30"}) as broker:
        place = {"tcp": broker.endpoints["iggy_tcp"], "http": f"http://{broker.endpoints['iggy_http']}/"}[transport]
        own = rust_client.run(program, transport, place)
        with lading.Producer(broker.url) as producer:
            producer.send("stream.topic", b"from lading", headers=[("carrier", "UA"), ("via", None)], partition=0)
        after = rust_client.run(program, "read", transport, place)
        seen = list(lading.Consumer(broker.url, "stream.topic", end="latest"))
    assert after[:2] == own
    assert [message["offset"] for message in after] == [0, 1, 2]
    assert [base64.b64decode(message["payload"]) for message in after] == [b"with headers", b"plain", b"from lading"]
    assert [message["id"] for message in after[:2]] == [2**128 - 1, 2]
    assert after[2]["id"] != 0
    assert headers_of(after[0]) == HEADERS
    assert headers_of(after[1]) == {}
    assert headers_of(after[2])["carrier"] == ("string", b"UA")
    assert all(message["timestamp"] > 1_600_000_000_000_000 for message in after)
    # as Lading's own client reads it, kinds and all
    assert {header.key: (Kind(header.kind).word, header.value) for header in seen[0].headers} == HEADERS
