"""The newest pre-release of apache-iggy, which speaks protocol 0.12, over each transport that it has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lading
from lading import testing
from lading.testing import BrokerProcess
from tests.interop import wheels

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).parent / "iggy_newest_python.py"
VERSION = "0.9.1.dev5"
PLACES = {
    "tcp": ("iggy+tcp", "iggy_tcp", ""),
    "tls": ("iggy+tcp", "iggy_tcp.secure", "?tls=true&tls_domain=localhost&tls_ca_file={ca}"),
    "quic": ("iggy+quic", "iggy_quic", ""),
    "websocket": ("iggy+ws", "iggy_websocket", ""),
    "http": ("iggy+http", "iggy_http", ""),
}
"""Scheme, endpoint and parameters of each transport."""
SENT = [[0, "first", ["carrier=UA", "delay=-12", "late=True"]], [1, "second", []]]


@pytest.fixture(scope="module")
def python() -> Path:
    try:
        return wheels.install("apache-iggy", VERSION, "3.11")
    except wheels.Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    secure = "endpoints.iggy_tcp.listeners.secure"
    with testing.broker(settings={f"{secure}.address": "127.0.0.1:0", f"{secure}.tls.enabled": True}) as running:
        yield running


def run(python: Path, broker: BrokerProcess, transport: str, word: str) -> dict[str, Any]:
    scheme, endpoint, parameters = PLACES[transport]
    place = (
        f"{scheme}://iggy:iggy@{broker.endpoints[endpoint]}{parameters.format(ca=broker.data_dir / 'certificate.pem')}"
    )
    seen: dict[str, Any]
    (seen,) = wheels.run(python, PROGRAM, place, word)
    return seen


@pytest.mark.turns(3)
@pytest.mark.parametrize("transport", PLACES)
def test_it_does_what_clients_do(python: Path, broker: BrokerProcess, transport: str) -> None:
    seen = run(python, broker, transport, "all")
    assert seen.pop("refused") and seen.pop("users") == ["iggy"]
    # who reads as a group is told so by connections alone
    assert seen.pop("group", None) == (None if transport == "http" else ["first", "fourth", "second", "third"])
    assert seen == {
        "confirmed": [0],
        "polled": SENT,
        "other": [],
        "topic": [0, "topic", 2, 4],
        "stream": [0, "stream", 1],
        "streams": ["stream"],
        "missing": [None, None],
        "renamed": "renamed",
        "messages": 4,
    }
    payloads = lading.read_arrow(broker.url, "stream.topic").column("payload").to_pylist()
    assert set(payloads) == {b"first", b"fourth", b"second", b"third"}
    other = "http" if transport == "tcp" else "tcp"
    assert run(python, broker, other, "read")["read"][:2] == SENT
