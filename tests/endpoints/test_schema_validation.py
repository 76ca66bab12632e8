"""Topics with ``validate_schemas``: Kafka's producers may send only values whose schema is of the topic's subject."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import count

import httpx
import pytest
from confluent_kafka import KafkaError, Producer

from lading import read_arrow, testing
from lading.transports.lading.transport import LadingTransport
from lading.transports.open import open_transport

_numbers = count(1)
Headers = list[tuple[str, str | bytes | None]]


class Registered:
    """A topic that validates, with a schema of its subject and one of another subject."""

    def __init__(self, broker: testing.BrokerProcess) -> None:
        self.topic = f"validated-{next(_numbers)}"
        self._address = broker.endpoints["kafka"]
        with httpx.Client(base_url=f"http://{broker.endpoints['admin']}") as admin:
            settings = {"validate_schemas": True}
            assert admin.post(f"/topics/default/{self.topic}", json={"settings": settings}).status_code == 201
        self.url = f"http://{broker.endpoints['schema_registry']}"
        own, other = (
            httpx.post(
                f"{self.url}/subjects/{subject}/versions", json={"schema": f'{{"type":"string","x":"{subject}"}}'}
            )
            for subject in (f"{self.topic}-value", f"{self.topic}-other")
        )
        self.id, self.guid = own.json()["id"], uuid.UUID(own.json()["guid"]).bytes
        self.other_id = other.json()["id"]

    def _register(self, subject: str) -> httpx.Response:
        schema = {"schema": f'{{"type":"string","subject":"{subject}"}}'}
        return httpx.post(f"{self.url}/subjects/{subject}/versions", json=schema)

    def send(self, *records: tuple[bytes | None, Headers], codec: str = "none") -> list[str | None]:
        """Send records as one batch and return the error of each."""
        errors: list[str | None] = []

        def note(error: KafkaError | None, _: object) -> None:
            errors.append(None if error is None else error.name())

        producer = Producer({"bootstrap.servers": self._address, "linger.ms": 200, "compression.type": codec})
        for value, headers in records:
            producer.produce(self.topic, value, headers=headers, on_delivery=note)
        producer.flush(20)
        return errors

    def frame(self, schema_id: int) -> bytes:
        return b"\0" + schema_id.to_bytes(4, "big")


@pytest.fixture
def registered(broker: testing.BrokerProcess) -> Iterator[Registered]:
    yield Registered(broker)


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
def test_ids_of_the_topics_subject_are_accepted(registered: Registered, codec: str) -> None:
    name = "__value_schema_id"
    framed = registered.frame(registered.id) + b"payload"
    accepted: list[tuple[bytes | None, Headers]] = [
        (framed, []),
        (b"\1" + registered.guid + b"payload", []),
        (b"bare", [("a", b"b"), (name, b"\1" + registered.guid)]),
        # Protobuf's message indexes follow the GUID
        (b"bare", [(name, b"\1" + registered.guid + b"\2\2")]),
        (b"bare", [(name, registered.frame(registered.id))]),
        # a null header does not count, and the first one with a value goes before the payload
        (framed, [(name, None)]),
        (b"bare", [(name, b"\1" + registered.guid), (name, b"odd")]),
        (None, []),
    ]
    assert registered.send(*accepted, codec=codec) == [None] * len(accepted)
    # more than is looked through on the event loop
    assert set(registered.send(*[(framed, [])] * 500, codec=codec)) == {None}


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_other_values_are_refused(registered: Registered, codec: str) -> None:
    name = "__value_schema_id"
    framed = registered.frame(registered.id) + b"payload"
    refused: list[tuple[bytes | None, Headers]] = [
        (b"", []),
        (b"plain text", []),
        (b"\0\0\0", []),
        (registered.frame(registered.other_id) + b"x", []),
        (registered.frame(999_999) + b"x", []),
        (b"\1" + bytes(16) + b"x", []),
        (framed, [(name, b"\1" + bytes(16))]),
        (framed, [(name, b"")]),
    ]
    for record in refused:
        assert registered.send(record, codec=codec) == ["INVALID_RECORD"], record
    assert set(registered.send(*[(framed, [])] * 300, refused[4], codec=codec)) & {"INVALID_RECORD"}


def test_a_deleted_version_is_refused_and_other_topics_take_anything(
    registered: Registered, broker: testing.BrokerProcess
) -> None:
    framed = registered.frame(registered.id) + b"payload"
    assert registered.send((framed, [])) == [None]
    httpx.delete(f"{registered.url}/subjects/{registered.topic}-value")
    assert registered.send((framed, [])) == ["INVALID_RECORD"]
    with httpx.Client(base_url=f"http://{broker.endpoints['admin']}") as admin:
        path = f"/topics/default/{registered.topic}/settings"
        assert admin.put(path, json={"validate_schemas": None}).status_code < 300
    assert registered.send((b"plain", [])) == [None]


ORDER = """{"type":"record","name":"Order","fields":[{"name":"city","type":"string"},
{"name":"amount","type":"long"}]}"""


def test_conditions_read_payloads_by_the_ids_of_their_schemas_in_the_broker(
    registered: Registered, broker: testing.BrokerProcess
) -> None:
    # records of Avro and of JSON Schema, by id and by GUID, and one whose payload does not fit its schema
    subjects = f"{registered.url}/subjects/{registered.topic}-value/versions"
    httpx.put(f"{registered.url}/config", json={"compatibility": "NONE"})
    avro = httpx.post(subjects, json={"schema": ORDER}).json()
    json_ = httpx.post(subjects, json={"schema": '{"type":"object"}', "schemaType": "JSON"}).json()
    tenant: Headers = [("tenant", b"a")]
    assert (
        registered.send(
            (registered.frame(avro["id"]) + b"\x08Rome\x0a", tenant),
            (b"\x08Oslo\x0c", [*tenant, ("__value_schema_id", b"\1" + uuid.UUID(avro["guid"]).bytes)]),
            (registered.frame(json_["id"]) + b'{"city":"Lima","amount":7}', tenant),
            (registered.frame(avro["id"]) + b"\x08Bonn\x0e", [("tenant", b"b")]),
            (registered.frame(avro["id"]) + b"\x08", tenant),
        )
        == [None] * 5
    )
    transport = open_transport(broker.url)
    assert isinstance(transport, LadingTransport)
    found = transport.query(registered.topic, 0, 0, where="tenant = 'a' AND payload.amount > 5", columns="offset")
    assert [row for batch in found.batches for row in batch.column("offset").to_pylist()] == [1, 2]
    by_text = transport.query(registered.topic, 0, 0, where="payload.city = 'Rome'", columns="offset")
    assert [row for batch in by_text.batches for row in batch.column("offset").to_pylist()] == [0]
    named = transport.query(registered.topic, 0, 0, columns="city string from payload, amount int from payload")
    cities = [row for batch in named.batches for row in batch.column("city").to_pylist()]
    assert cities == ["Rome", "Oslo", "Lima", "Bonn", None]
    transport.close()
    # the client's readers hand such conditions to the broker as well
    table = read_arrow(broker.url, registered.topic, "offset", where="payload.amount BETWEEN 6 AND 7")
    assert table.column("offset").to_pylist() == [1, 2, 3]
    with httpx.Client(base_url=f"http://{broker.endpoints['admin']}") as admin:
        body = {"state": "poisoned", "where": "payload.city = 'Bonn'"}
        done = admin.put(f"/topics/default/{registered.topic}/0/states", json=body).json()
        assert (done["matched"], done["changed"]) == (1, 1)
