"""Clients of Confluent's registry, unmodified: confluent-kafka's serialisers in both forms, and franz-go's ``sr``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lading import testing
from tests.interop import go_programs, wheels

VERSION = "2.16.1"
TIMEOUT_S = 120

pytestmark = [pytest.mark.interop, pytest.mark.timeout(go_programs.BUILD_TIMEOUT_S + TIMEOUT_S)]


def run(*command: str) -> list[str]:
    done = subprocess.run(["nice", *command], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout.splitlines()


def test_confluents_python_serialisers() -> None:
    try:
        python = wheels.install("confluent-kafka", VERSION, "3.11", extras="avro,json,protobuf,schemaregistry")
    except wheels.Unavailable as reason:
        pytest.skip(str(reason))
    with testing.broker() as running:
        script = str(Path(__file__).with_name("schema_registry_python.py"))
        url = f"http://{running.endpoints['schema_registry']}"
        assert run(str(python), script, running.endpoints["kafka"], url) == [
            "read ['avro', 'avro', 'json', 'json', 'protobuf', 'protobuf']",
            "subjects ['avro-value', 'item.proto', 'json-value', 'protobuf-value']",
            "compatible False",
            "refused 409 409",
            "registered 2",
            "latest 2 [1, 2]",
            "deleted [1, 2] [1, 2]",
        ]


def test_franz_go() -> None:
    try:
        program = go_programs.client("registry", Path(__file__).with_name("kafka_go"))
    except go_programs.Unavailable as reason:
        pytest.skip(str(reason))
    with testing.broker() as running:
        assert run(str(program), f"http://{running.endpoints['schema_registry']}") == [
            "created go-value 1 true",
            "by id true",
            "lookup true",
            "protobuf PROTOBUF 1",
            "subjects [go-json-value go-proto-value go-value]",
            "level FULL",
            "compatible false true",
            "missing Schema 99999 not found",
            "types [AVRO PROTOBUF JSON]",
            "mode READWRITE <nil>",
            "versions [1]",
            "uses 1",
            "all 3",
            "deleted [1]",
            "framed 0 [0 8 7]",
        ]
