"""Subjects by TOPIC, RECORD and TOPIC_RECORD: as Confluent's serialisers name them, in every place that names one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from lading import read_arrow, testing, write_arrow
from lading.cli.main import main
from lading.model.errors import LocalError, SettingError
from lading.registry.payload_encoder import find_writer_schema
from lading.schemas.formats import parse_schema
from lading.schemas.subjects import STRATEGIES, build_subject, list_record_names
from tests.interop import wheels

ORDER = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"long"}]}'
RETURN = '{"type":"record","name":"Return","namespace":"shop","fields":[{"name":"why","type":"string"}]}'
AVRO = '{"type":"record","name":"Order","namespace":"shop.avro","doc":"%s","fields":[{"name":"id","type":"long"}]}'
JSON = '{"title":"shop.json.Order","description":"%s","type":"object","properties":{"id":{"type":"integer"}}}'
"""As in name_with_confluent.py."""
PROTO = 'syntax = "proto3"; package shop; message Other {} message Outer { message Order { int64 id = 1; } }'
_numbers = count(1)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerProcess]:
    with testing.broker(tmp_path_factory.mktemp("data")) as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    return f"named{next(_numbers)}"


def registry_of(broker: testing.BrokerProcess) -> str:
    return f"http://{broker.endpoints['schema_registry']}"


def subjects_of(broker: testing.BrokerProcess) -> set[str]:
    return set(httpx.get(f"{registry_of(broker)}/subjects").json())


@pytest.mark.parametrize(
    ("kind", "text", "names"),
    [
        ("AVRO", ORDER, ["shop.Order"]),
        ("AVRO", '{"type":"enum","name":"a.b.Color","symbols":["R"]}', ["a.b.Color"]),
        ("AVRO", '"string"', []),
        ("AVRO", '["null","string"]', []),
        ("AVRO", '{"type":"array","items":"int"}', []),
        ("JSON", '{"title":"Order","type":"object"}', ["Order"]),
        ("JSON", '{"type":"object"}', []),
        ("JSON", "true", []),
        ("PROTOBUF", PROTO, ["shop.Other", "shop.Outer", "shop.Outer.Order"]),
        ("PROTOBUF", 'syntax = "proto3"; message Order {}', ["Order"]),
    ],
)
def test_names_of_records(kind: str, text: str, names: list[str]) -> None:
    assert list_record_names(parse_schema(kind, text, is_new=False)) == names


def test_subjects_have_a_suffix_by_topic_alone() -> None:
    assert [build_subject(one, "t", "a.R") for one in STRATEGIES] == ["t-value", "a.R", "t-a.R"]
    assert [build_subject(one, "t", "a.R", "key") for one in STRATEGIES] == ["t-key", "a.R", "t-a.R"]
    assert [build_subject(one, "t", None) for one in STRATEGIES] == ["t-value", None, None]


@pytest.mark.timeout(300)
def test_confluents_serialisers_name_the_same_subjects_and_a_topic_takes_those_of_its_strategy(
    served: testing.BrokerProcess, topic: str, tmp_path: Path
) -> None:
    try:
        python = wheels.install("confluent-kafka", "2.16.1", "3.11", extras="avro,json,protobuf,schemaregistry")
    except wheels.Unavailable as reason:
        pytest.skip(str(reason))
    for strategy in STRATEGIES:
        validate(served, f"{topic}-{strategy}", strategy)
    # three formats in one subject of TOPIC are not compatible
    httpx.put(f"{registry_of(served)}/config", json={"compatibility": "NONE"}).raise_for_status()
    script = Path(__file__).with_name("name_with_confluent.py")
    done = subprocess.run(
        [str(python), str(script), served.endpoints["kafka"], registry_of(served), topic],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    names = {"avro": "shop.avro.Order", "json": "shop.json.Order", "protobuf": "shop.proto.Outer.Order"}
    theirs = subjects_of(served)
    assert theirs >= {
        *(f"{topic}-{strategy}-value" for strategy in STRATEGIES),
        *names.values(),
        *(f"{topic}-{strategy}-{names['avro']}" for strategy in STRATEGIES),
        f"{topic}-TOPIC_RECORD-{names['protobuf']}",
    }  # fmt: skip
    for case, error in json.loads(done.stdout).items():
        strategy, other, kind = case.split()
        assert error == (None if strategy == other else "INVALID_RECORD"), (case, kind)
    # ours find the same subjects: a schema that is registered there already makes no other one
    files = {
        "o.avsc": AVRO % "RECORD TOPIC", "o.json": JSON % "RECORD TOPIC",
        "o.proto": PROTO.replace("package shop;", "package shop.proto;"),
    }  # fmt: skip
    for file, text in files.items():
        (tmp_path / file).write_text(text)
        for strategy in STRATEGIES:
            find_writer_schema(
                str(tmp_path / file), f"{topic}-{strategy}", registry=registry_of(served), subject_strategy=strategy,
                message="Outer.Order" if file == "o.proto" else "",
            )  # fmt: skip
    assert subjects_of(served) == theirs


def test_writers_register_by_a_strategy_and_a_contract_follows_it(
    served: testing.BrokerProcess, topic: str, tmp_path: Path
) -> None:
    registry = registry_of(served)
    before = subjects_of(served)
    rows = pa.table({"id": [1, 2]})
    write_arrow(
        rows, served.url, topic, payload_format="avro", schema=ORDER, registry=registry, headers=[],
        payload_columns=["id"], subject_strategy="TOPIC_RECORD",
    )  # fmt: skip
    assert subjects_of(served) - before == {f"{topic}-shop.Order"}
    settings = {
        "format": "schema", "registry": registry, "registry_cache": str(tmp_path), "subject_strategy": "TOPIC_RECORD",
    }  # fmt: skip
    # the schema has several subjects: the strategy says which is meant
    write_arrow(
        rows, served.url, f"{topic}-2", payload_format="avro", schema=ORDER, registry=registry, headers=[],
        payload_columns=["id"], subject_strategy="RECORD",
    )  # fmt: skip
    subjects = {
        strategy: read_arrow(
            served.url, topic, 'subject string from schema("value").subject',
            payload={**settings, "subject_strategy": strategy, "registry_cache": str(tmp_path / strategy)},
        )["subject"].to_pylist()
        for strategy in STRATEGIES
    }  # fmt: skip
    assert subjects == {"TOPIC": [None] * 2, "RECORD": ["shop.Order"] * 2, "TOPIC_RECORD": [f"{topic}-shop.Order"] * 2}


def test_commands_send_infer_and_compare_by_a_strategy(
    served: testing.BrokerProcess, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry = ["--registry", registry_of(served), "--subject-strategy", "TOPIC_RECORD"]
    (tmp_path / "order.avsc").write_text(ORDER)
    (tmp_path / "return.avsc").write_text(RETURN)
    before = subjects_of(served)
    sent = ["message", "send", topic, '{"id": 7}', "--schema", str(tmp_path / "order.avsc"), "-s", served.url]
    run(capsys, *sent, *registry)
    assert subjects_of(served) - before == {f"{topic}-shop.Order"}
    contract = run(capsys, "contract", "infer", topic, "--from", served.url, *registry)
    assert (
        'payload_id = "bigint required from payload.id"' in contract and 'subject_strategy = "TOPIC_RECORD"' in contract
    )
    file = tmp_path / "named.toml"
    file.write_text(contract)
    run(capsys, "contract", "infer", topic, "--against", str(file), "--from", served.url)
    wider = ORDER.replace("]}", ',{"name":"note","type":["null","string"],"default":null}]}')
    versions = f"{registry_of(served)}/subjects/{topic}-shop.Order/versions"
    assert httpx.post(versions, json={"schema": wider}).status_code == 200
    against = ["contract", "infer", topic, "--against", str(file), "--from", served.url, "--output", "json"]
    drift = json.loads(run(capsys, *against, code=1).splitlines()[0])
    assert (drift["header"], drift["kind"]) == ("payload.note", "new in schema")
    assert f"version 2 of {topic}-shop.Order has it, as string" in drift["sentence"]
    # of several records none is the topic's
    run(
        capsys, "message", "send", topic, '{"why": "late"}', "--schema", str(tmp_path / "return.avsc"), "-s",
        served.url, *registry,
    )  # fmt: skip
    said = run(capsys, "contract", "infer", topic, "--from", served.url, *registry, code=2)
    assert f"records of 2 subjects: {topic}-shop.Order, {topic}-shop.Return; name one with --schema" in said
    both = [json.loads(line) for line in run(capsys, *against, code=1).splitlines()]
    assert {"payload.note", "payload.why"} <= {row["header"] for row in both}


def test_a_strategy_that_names_nothing_is_refused(served: testing.BrokerProcess, topic: str, tmp_path: Path) -> None:
    registry, rows = registry_of(served), pa.table({"id": [1]})

    def write(schema: str, **more: Any) -> None:
        write_arrow(
            rows, served.url, topic, payload_format="avro", schema=schema, headers=[], payload_columns=["id"], **more
        )

    with pytest.raises(LocalError, match="takes the name of the record, and the schema has none; give it a named type"):
        write('["null",{"type":"map","values":"int"}]', registry=registry, subject_strategy="RECORD")
    with pytest.raises(SettingError, match="it takes TOPIC, RECORD, TOPIC_RECORD"):
        write(ORDER, registry=registry, subject_strategy="RECORDS")
    with pytest.raises(SettingError, match="add registry"):
        write(ORDER, subject_strategy="RECORD")
    with pytest.raises(SettingError, match="leave one of them out"):
        write(ORDER, registry=registry, subject_strategy="RECORD", subject="s")
    with pytest.raises(SettingError, match="did you mean 'TOPIC_RECORD'"):
        read_arrow(
            served.url, topic, "id int from payload",
            payload={"format": "schema", "registry": registry, "subject_strategy": "TOPIC_RECORDS"},
        )  # fmt: skip


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    done = capsys.readouterr()
    assert (ended.value.code or 0) == code, done
    return done.out or " ".join(done.err.split())


def validate(broker: testing.BrokerProcess, topic: str, strategy: str) -> None:
    settings = {"validate_schemas": True, "subject_strategy": strategy}
    with httpx.Client(base_url=f"http://{broker.endpoints['admin']}") as admin:
        assert admin.post(f"/topics/default/{topic}", json={"settings": settings}).status_code == 201
