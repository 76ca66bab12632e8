"""The newest release of the crate, 0.11.0 in Rust, and the pre-release ahead of it, over each transport they have."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import lading
from lading import testing
from tests.interop import rust_client

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1500)]

FOLDERS = ("iggy_rust_current", "iggy_rust_newest")
HEADERS = [
    [2, b"number".hex(), 7, struct.pack("<q", -(2**63)).hex()],
    [2, b"text".hex(), 2, "žluťoučký".encode().hex()],
    [12, struct.pack("<Q", 7).hex(), 3, "01"],
]
"""Key kind, key, kind and value of what the program sends with its first message, as it sorts them."""
KEPT = 90
"""Messages that a program sends one after another, in some 2 s."""
ENDPOINTS = {"tcp": "iggy_tcp", "quic": "iggy_quic", "ws": "iggy_websocket", "http": "iggy_http"}


@pytest.fixture(scope="module", params=FOLDERS)
def program(request: pytest.FixtureRequest, full: bool) -> Path:
    """The client, or a skip that says why there is none."""
    folder: str = request.param
    if not full and not rust_client.is_built(folder):
        pytest.skip("building another crate takes 2 to 3 minutes of both cores: with LADING_TEST_FULL=1")
    try:
        return rust_client.build(folder=folder)
    except rust_client.Unavailable as error:
        pytest.skip(str(error))


def url_of(broker: testing.BrokerProcess, scheme: str) -> str:
    return f"iggy+{scheme}://iggy:iggy@{broker.endpoints[ENDPOINTS[scheme]]}"


@pytest.mark.parametrize("scheme", ENDPOINTS)
def test_what_it_sends_over_one_transport_it_gets_over_all(program: Path, scheme: str, full: bool) -> None:
    with testing.broker() as broker:
        own = rust_client.run(program, "write", url_of(broker, scheme))
        with lading.Producer(broker.url) as producer:
            producer.send("stream.topic", b"from lading", headers=[("carrier", "UA"), ("via", None)], partition=0)
        # the program waits for seconds when it leaves some of them
        others = ENDPOINTS if full else {"tcp": "", "http": ""}
        seen = {other: rust_client.run(program, "read", url_of(broker, other)) for other in others}
    for other, messages in seen.items():
        assert messages[:2] == own, other
        assert [message["offset"] for message in messages] == [0, 1, 2]
        assert [bytes.fromhex(message["payload"]) for message in messages] == [
            b"with headers",
            b"plain",
            b"from lading",
        ]
        assert [message["id"] for message in messages[:2]] == [str(2**64 - 1), "2"]
        assert messages[0]["headers"] == HEADERS
        assert_carried(messages[2])
    assert len({str(messages) for messages in seen.values()}) == 1


@pytest.mark.parametrize("scheme", ENDPOINTS)
def test_it_gets_a_snapshot_of_everything(program: Path, scheme: str) -> None:
    with testing.broker() as broker:
        (answer,) = rust_client.run(program, "snapshot", url_of(broker, scheme))
    with zipfile.ZipFile(io.BytesIO(bytes.fromhex(answer["archive"]))) as archive:
        assert archive.testzip() is None
        names = {name.removesuffix(".txt") for name in archive.namelist()}
    assert names == {"filesystem_overview", "process_list", "resource_usage", "server_logs", "server_config"}


@pytest.mark.parametrize("scheme", ["tcp", "quic", "ws"])
@pytest.mark.parametrize("how", ["keep", "keep-once"])
def test_it_goes_on_when_the_broker_is_killed_and_back(program: Path, scheme: str, how: str, tmp_path: Path) -> None:
    """What it was told to be sent is there; numbered by the producer, all of it, and once."""
    if how == "keep-once" and program.name != rust_client.PROGRAMS["iggy_rust_newest"]:
        pytest.skip("no release before protocol 0.12 numbers messages")
    data = tmp_path / "data"
    with testing.broker(data) as broker:
        rust_client.run(program, "write", url_of(broker, "tcp"))
        addresses = {f"endpoints.{ENDPOINTS[one]}.address": broker.endpoints[ENDPOINTS[one]] for one in ENDPOINTS}
    with testing.broker(data, settings=addresses) as broker:
        sending = subprocess.Popen(
            [program, how, url_of(broker, scheme), str(KEPT)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert sending.stdout is not None
        lines = [sending.stdout.readline() for _ in range(KEPT // 3)]
        broker.kill()
    with testing.broker(data, settings=addresses):
        rest, said = sending.communicate(timeout=60)
        assert sending.returncode == 0, said
    outcomes = [json.loads(line) for line in [*lines, *rest.splitlines()]]
    found = Counter(lading.read_arrow(str(data), "stream.topic", columns="payload")["payload"].to_pylist()[2:])
    assert [one["number"] for one in outcomes] == list(range(KEPT))
    told = {b"%d" % one["number"] for one in outcomes if one["error"] is None}
    assert told <= found.keys()
    if how == "keep-once":
        assert len(told) == KEPT
        assert found == Counter(told)


def assert_carried(message: dict[str, Any]) -> None:
    """What another protocol sent has an id of its own, and its headers as far as the generation can hold them."""
    assert message["id"] != "0"
    assert [2, b"carrier".hex(), 2, b"UA".hex()] in message["headers"]
