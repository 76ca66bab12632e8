"""The schema registry over HTTP: what Confluent's returns for the same calls, after a kill, and with users."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import time
import uuid
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from lading import testing
from lading.broker.core.access.rights import Right
from lading.broker.schemas.registry import SchemaRegistry
from lading.broker.schemas.requests import digest_schema, make_guid
from lading.endpoints.registry.endpoint import SchemaRegistryRoutes
from lading.log.catalog import Catalog
from lading.log.schema_table import SchemaRow, SchemaTable
from tests.endpoints.identity import PASSWORDS, add_users, broker_with_users, rule

_numbers = count(1)
LISTED_S = 240
"""The time that a client of 100,000 schemas waits on a busy machine."""
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


@pytest.fixture
def web(broker: testing.BrokerProcess) -> Iterator[httpx.Client]:
    with open_client(broker) as client:
        yield client


def open_client(running: testing.BrokerProcess, user: str = "", timeout_s: float = 20) -> httpx.Client:
    auth = httpx.BasicAuth(user, PASSWORDS[user]) if user else None
    return httpx.Client(base_url=f"http://{running.endpoints['schema_registry']}", auth=auth, timeout=timeout_s)


@pytest.fixture
def subject() -> str:
    return f"topic-{next(_numbers)}-value"


def record(*names: str, **defaults: Any) -> dict[str, Any]:
    fields: list[dict[str, Any]] = [{"name": name, "type": "string"} for name in names]
    fields += [{"name": name, "type": "string", "default": value} for name, value in defaults.items()]
    return {"schema": json.dumps({"type": "record", "name": "R", "fields": fields})}


def refused(response: httpx.Response) -> tuple[int, int]:
    """Return status and code of an error, which always has a message."""
    document = response.json()
    assert response.headers["content-type"] == MEDIA_TYPE
    assert set(document) == {"error_code", "message"}, document
    assert document["message"]
    return response.status_code, document["error_code"]


def register(web: httpx.Client, subject: str, body: dict[str, Any], **query: Any) -> dict[str, Any]:
    response = web.post(f"/subjects/{subject}/versions", json=body, params=query)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == MEDIA_TYPE
    document: dict[str, Any] = response.json()
    return document


def test_a_schema_is_registered_once_and_found_by_id_guid_and_version(web: httpx.Client, subject: str) -> None:
    body = record(subject.replace("-", "_"))
    first = register(web, subject, body)
    assert first["version"] == 1
    # another spelling of the same schema
    assert register(web, subject, {"schema": json.dumps(json.loads(body["schema"]), indent=2)}) == first
    text = json.dumps(json.loads(body["schema"]), separators=(",", ":"))
    assert web.get(f"/schemas/ids/{first['id']}").json()["schema"] == text
    assert web.get(f"/schemas/ids/{first['id']}/schema").text == text
    assert web.get(f"/schemas/guids/{first['guid']}").json()["id"] == first["id"]
    assert web.get(f"/subjects/{subject}/versions").json() == [1]
    shown = web.get(f"/subjects/{subject}/versions/latest").json()
    assert (
        shown == web.get(f"/subjects/{subject}/versions/1").json() == web.get(f"/subjects/{subject}/versions/-1").json()
    )
    assert (shown["subject"], shown["version"], shown["id"], shown["schema"]) == (subject, 1, first["id"], text)
    # Avro's name is left out, as old clients expect
    assert "schemaType" not in shown
    assert web.get(f"/subjects/{subject}/versions/1/schema").text == text
    # one schema under two subjects has one id
    other = register(web, subject + "-2", body)
    assert (other["id"], other["guid"], other["version"]) == (first["id"], first["guid"], 1)
    assert web.get(f"/schemas/ids/{first['id']}/subjects").json() == [subject, subject + "-2"]
    assert web.get(f"/schemas/ids/{first['id']}/versions").json()[0] == {"subject": subject, "version": 1}


def test_a_guid_is_the_one_of_confluents_registry(web: httpx.Client, subject: str) -> None:
    # MD5 of the canonical text: java.util.UUID of the 16 bytes
    guid = uuid.UUID(bytes=hashlib.md5(b'"string"').digest())
    assert register(web, subject, {"schema": '{"type": "string"}'})["guid"] == str(guid)


def test_lookup_of_a_schema_under_its_subject(web: httpx.Client, subject: str) -> None:
    assert refused(web.post(f"/subjects/{subject}", json=record("a"))) == (404, 40401)
    first = register(web, subject, record("a"))
    found = web.post(f"/subjects/{subject}?normalize=False&deleted=False", json=record("a")).json()
    assert (found["id"], found["version"], found["subject"]) == (first["id"], 1, subject)
    assert refused(web.post(f"/subjects/{subject}", json=record("b"))) == (404, 40403)
    spaced = {"schema": '{"name":"R","type":"record","x":2,"a":1,"fields":[{"name":"a","type":"string"}]}'}
    sorted_ = {"schema": '{"name":"R","type":"record","a":1,"x":2,"fields":[{"name":"a","type":"string"}]}'}
    register(web, subject, sorted_, normalize=True)
    assert refused(web.post(f"/subjects/{subject}", json=spaced)) == (404, 40403)
    assert web.post(f"/subjects/{subject}?normalize=true", json=spaced).json()["version"] == 2


def test_what_is_missing_or_invalid_has_its_code(web: httpx.Client, subject: str) -> None:
    register(web, subject, record("a"))
    assert refused(web.get("/subjects/none/versions")) == (404, 40401)
    assert refused(web.get("/subjects/none/versions/1")) == (404, 40401)
    assert refused(web.get(f"/subjects/{subject}/versions/7")) == (404, 40402)
    for version in ("0", "-2", "x", "2147483648"):
        assert refused(web.get(f"/subjects/{subject}/versions/{version}")) == (422, 42202)
    assert refused(web.get("/schemas/ids/999999")) == (404, 40403)
    assert refused(web.get("/schemas/ids/x")) == (404, 404)
    assert refused(web.get("/schemas/guids/x")) == (404, 40403)
    assert refused(web.get("/nothing")) == (404, 404)
    assert refused(web.put("/subjects")) == (405, 405)
    for body in ({}, {"schema": ""}, {"schema": 7}, {"schema": "{"}, {"schema": '"x"', "schemaType": "X"}):
        assert refused(web.post(f"/subjects/{subject}/versions", json=body)) == (422, 42201)
    assert refused(web.post(f"/subjects/{subject}/versions", content=b"{")) == (422, 422)
    assert refused(web.post("/subjects/%3A.ctx%3As/versions", json=record("a"))) == (422, 42208)
    assert refused(web.get("/associations/resources/-/orders?resourceType=topic")) == (404, 40410)
    large = {"schema": '"' + "x" * (10 << 20) + '"'}
    assert refused(web.post(f"/subjects/{subject}/versions", json=large)) == (413, 413)
    assert "AVRO" in web.get("/schemas/types").json()
    assert web.get("/contexts").json() == ["."]


def test_soft_and_permanent_deletes(web: httpx.Client, subject: str) -> None:
    ids = [register(web, subject, record("only_here", **{"b": "x"} if n else {}))["id"] for n in range(2)]
    assert refused(web.delete(f"/subjects/{subject}/versions/1?permanent=true")) == (404, 40407)
    assert web.delete(f"/subjects/{subject}/versions/1").json() == 1
    assert refused(web.delete(f"/subjects/{subject}/versions/1")) == (404, 40406)
    assert web.get(f"/subjects/{subject}/versions").json() == [2]
    assert web.get(f"/subjects/{subject}/versions?deleted=true").json() == [1, 2]
    assert web.get(f"/subjects/{subject}/versions?deletedOnly=true").json() == [1]
    assert refused(web.get(f"/subjects/{subject}/versions/1")) == (404, 40402)
    assert web.get(f"/subjects/{subject}/versions/1?deleted=True").json()["id"] == ids[0]
    # what was written with it can still be read
    assert web.get(f"/schemas/ids/{ids[0]}").status_code == 200
    assert web.delete(f"/subjects/{subject}/versions/1?permanent=true").json() == 1
    assert refused(web.get(f"/schemas/ids/{ids[0]}")) == (404, 40403)
    assert refused(web.delete(f"/subjects/{subject}?permanent=true")) == (404, 40405)
    assert web.delete(f"/subjects/{subject}").json() == [2]
    assert refused(web.delete(f"/subjects/{subject}")) == (404, 40404)
    assert subject not in web.get("/subjects").json()
    assert subject in web.get("/subjects?deleted=true").json()
    assert subject in web.get("/subjects?deleted_only=True").json()
    # registered again, a deleted version gets the next number and keeps the id
    again = register(web, subject, record("only_here", b="x"))
    assert (again["version"], again["id"]) == (3, ids[1])
    web.delete(f"/subjects/{subject}")
    assert web.delete(f"/subjects/{subject}?permanent=true").json() == [3]
    assert refused(web.get(f"/subjects/{subject}/versions?deleted=true")) == (404, 40401)
    # an id is never used twice
    assert register(web, subject, record("only_here"))["id"] > max(ids)


@pytest.mark.parametrize("path", ["", "/versions/1"])
def test_a_schema_that_is_deleted_softly_and_registered_again_stays(web: httpx.Client, subject: str, path: str) -> None:
    """The old version went with its schema, which the new version then had not: GET /schemas was an error 500."""
    body = record(subject.replace("-", "_"))
    ident = register(web, subject, body)["id"]
    text = web.get(f"/schemas/ids/{ident}").json()["schema"]
    assert web.delete(f"/subjects/{subject}{path}").status_code == 200
    assert register(web, subject, body)["id"] == ident
    shown = web.get(f"/subjects/{subject}/versions/latest").json()
    assert (shown["id"], shown["schema"]) == (ident, text)
    assert web.get("/schemas").status_code == 200


def test_lists_are_cut_by_offset_and_limit(web: httpx.Client, subject: str) -> None:
    for number in range(5):
        register(web, subject, record("a", **{f"b{number}": ""}))
        register(web, f"page-{number}", record("a"))
    assert web.get(f"/subjects/{subject}/versions?offset=1&limit=2").json() == [2, 3]
    assert web.get("/subjects?subjectPrefix=page-&offset=3&limit=-1").json() == ["page-3", "page-4"]
    shown = web.get(f"/schemas?subjectPrefix={subject}&latestOnly=true").json()
    assert [(one["subject"], one["version"]) for one in shown] == [(subject, 5)]
    assert len(web.get(f"/schemas?subjectPrefix={subject}&limit=2").json()) == 2


def test_a_new_version_is_held_to_the_level(web: httpx.Client, subject: str) -> None:
    register(web, subject, record("f1"))
    response = web.post(f"/subjects/{subject}/versions", json=record("f1", "f2"))
    assert refused(response) == (409, 409)
    # the text of Confluent's registry (RestApiCompatibilityTest)
    assert response.json()["message"] == (
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
        "[{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'f2' at path '/fields/1' in the new "
        "schema has no default value and is missing in the old schema', additionalInfo:'f2'}, {oldSchemaVersion: 1}, "
        '{oldSchema: \'{"type":"record","name":"R","fields":[{"name":"f1","type":"string"}]}\'}, '
        "{validateFields: 'false', compatibility: 'BACKWARD'}]"
    )
    check = f"/compatibility/subjects/{subject}/versions"
    assert web.post(f"{check}/latest", json=record("f1", "f2")).json() == {"is_compatible": False}
    told = web.post(f"{check}?verbose=true", json=record("f1", "f2")).json()
    assert (told["is_compatible"], len(told["messages"])) == (False, 4)
    assert web.post(f"{check}/1?verbose=true", json=record("f1", f2="")).json() == {
        "is_compatible": True,
        "messages": [],
    }
    assert refused(web.post(f"{check}/9", json=record("f1"))) == (404, 40402)
    assert web.post("/compatibility/subjects/none/versions/latest", json=record("f1")).json() == {"is_compatible": True}
    assert refused(web.post(f"{check}/latest", json={"schema": "{"})) == (422, 42201)
    assert not web.post(f"{check}/latest?verbose=true", json={"schema": "{"}).json()["is_compatible"]
    assert web.put(f"/config/{subject}", json={"compatibility": "FORWARD"}).json() == {"compatibility": "FORWARD"}
    assert register(web, subject, record("f1", "f2"))["version"] == 2


def test_settings_of_all_and_of_a_subject(web: httpx.Client, subject: str) -> None:
    assert web.get("/config").json() == {"compatibilityLevel": "BACKWARD"}
    assert refused(web.get(f"/config/{subject}")) == (404, 40408)
    assert web.get(f"/config/{subject}?defaultToGlobal=true").json() == {"compatibilityLevel": "BACKWARD"}
    assert refused(web.put(f"/config/{subject}", json={"compatibility": "SOME"})) == (422, 42203)
    assert web.put(f"/config/{subject}", json={"compatibility": "none", "normalize": True}).json() == {
        "compatibility": "NONE", "normalize": True,
    }  # fmt: skip
    assert web.get(f"/config/{subject}").json() == {"compatibilityLevel": "NONE", "normalize": True}
    assert web.delete(f"/config/{subject}").json() == {"compatibilityLevel": "NONE", "normalize": True}
    assert refused(web.delete(f"/config/{subject}")) == (404, 40401)
    assert web.put("/config", json={"compatibility": "FULL"}).json() == {"compatibility": "FULL"}
    assert web.delete("/config").json() == {"compatibilityLevel": "FULL"}
    assert web.get("/config").json() == {"compatibilityLevel": "BACKWARD"}


def test_modes(web: httpx.Client, subject: str) -> None:
    assert web.get("/mode").json() == {"mode": "READWRITE"}
    assert refused(web.get(f"/mode/{subject}")) == (404, 40409)
    assert refused(web.put(f"/mode/{subject}", json={"mode": "ODD"})) == (422, 42204)
    assert web.put(f"/mode/{subject}", json={"mode": "READONLY"}).json() == {"mode": "READONLY"}
    assert refused(web.post(f"/subjects/{subject}/versions", json=record("a"))) == (422, 42205)
    assert refused(web.put(f"/config/{subject}", json={"compatibility": "FULL"})) == (422, 42205)
    assert web.delete(f"/mode/{subject}").json() == {"mode": "READONLY"}
    imported = {**record("a"), "id": 70_000 + next(_numbers), "version": 5}
    assert refused(web.post(f"/subjects/{subject}/versions", json=imported)) == (422, 42205)
    assert web.put(f"/mode/{subject}", json={"mode": "IMPORT"}).status_code == 200
    assert (register(web, subject, imported)["id"], web.get(f"/subjects/{subject}/versions").json()) == (
        imported["id"], [5],
    )  # fmt: skip
    assert refused(web.post(f"/subjects/{subject}/versions", json={**imported, **record("b")})) == (422, 42207)
    web.delete(f"/mode/{subject}")
    assert refused(web.put(f"/mode/{subject}", json={"mode": "IMPORT"})) == (422, 42205)
    assert web.put(f"/mode/{subject}?force=true", json={"mode": "IMPORT"}).status_code == 200
    web.delete(f"/mode/{subject}")


def test_references(web: httpx.Client, subject: str) -> None:
    address = '{"type":"record","name":"Address","namespace":"shop","fields":[{"name":"city","type":"string"}]}'
    register(web, f"address-{subject}", {"schema": address})
    text = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"to","type":"shop.Address"}]}'
    reference = {"name": "shop.Address", "subject": f"address-{subject}", "version": 1}
    assert refused(web.post(f"/subjects/{subject}/versions", json={"schema": text})) == (422, 42201)
    missing = {"schema": text, "references": [{**reference, "version": 9}]}
    assert refused(web.post(f"/subjects/{subject}/versions", json=missing)) == (422, 42201)
    order = register(web, subject, {"schema": text, "references": [reference]})
    assert web.get(f"/schemas/ids/{order['id']}").json()["references"] == [reference]
    assert web.get(f"/subjects/address-{subject}/versions/1/referencedby").json() == [order["id"]]
    assert refused(web.delete(f"/subjects/address-{subject}")) == (422, 42206)
    assert refused(web.delete(f"/subjects/address-{subject}/versions/1")) == (422, 42206)
    web.delete(f"/subjects/{subject}")
    assert web.delete(f"/subjects/address-{subject}").json() == [1]
    assert refused(web.delete(f"/subjects/address-{subject}?permanent=true")) == (422, 42206)
    web.delete(f"/subjects/{subject}?permanent=true")
    assert web.delete(f"/subjects/address-{subject}?permanent=true").json() == [1]


def test_protobuf_as_text_and_as_a_descriptor(web: httpx.Client, subject: str) -> None:
    item = 'syntax = "proto3";\npackage shop;\n\nmessage Item {\n  double price = 1;\n}\n'
    register(web, f"item-{subject}", {"schema": item, "schemaType": "PROTOBUF"})
    text = 'syntax = "proto3"; import "item.proto"; message Order { int64 id = 1; shop.Item item = 2; }'
    reference = {"name": "item.proto", "subject": f"item-{subject}", "version": 1}
    order = {"schema": text, "schemaType": "PROTOBUF", "references": [reference]}
    assert refused(web.post(f"/subjects/{subject}/versions", json={**order, "references": []})) == (422, 42201)
    first = register(web, subject, order)
    assert first["schemaType"] == "PROTOBUF"
    serialized = web.get(f"/schemas/ids/{first['id']}?format=serialized").json()["schema"]
    # the same file as a descriptor, as Python's clients send it
    sent = {**order, "schema": serialized}
    assert web.post(f"/subjects/{subject}?normalize=true", json=sent).status_code == 404
    again = register(web, subject, sent, normalize=True)
    assert register(web, subject, order, normalize=True)["version"] == again["version"]
    changed = {**order, "schema": text.replace("int64 id", "string id")}
    told = web.post(f"/compatibility/subjects/{subject}/versions/latest?verbose=true", json=changed).json()
    assert "FIELD_SCALAR_KIND_CHANGED" in told["messages"][0]


def test_json_schema(web: httpx.Client, subject: str) -> None:
    def order(**properties: str) -> dict[str, Any]:
        typed = {name: {"type": type_} for name, type_ in properties.items()}
        text = json.dumps({"type": "object", "properties": typed, "additionalProperties": False})
        return {"schema": text, "schemaType": "JSON"}

    register(web, subject, order(id="integer"))
    assert register(web, subject, order(id="number", note="string"))["version"] == 2
    assert refused(web.post(f"/subjects/{subject}/versions", json=order(id="string", note="string"))) == (409, 409)
    assert refused(web.post(f"/subjects/{subject}/versions", json=record("a"))) == (409, 409)


def test_metadata_makes_another_schema(web: httpx.Client, subject: str) -> None:
    plain = register(web, subject, record("a"))
    metadata = {"properties": {"owner": "ann"}}
    owned = register(web, subject, {**record("a"), "metadata": metadata})
    assert owned["version"] == 2
    assert owned["guid"] != plain["guid"]
    assert web.get(f"/subjects/{subject}/versions/2").json()["metadata"] == metadata
    assert web.get(f"/subjects/{subject}/metadata?key=owner&value=ann").json()["version"] == 2
    assert refused(web.get(f"/subjects/{subject}/metadata?key=owner&value=bob")) == (404, 40403)


def test_registered_schemas_survive_a_kill(tmp_path: Path) -> None:
    with testing.broker(data_dir=tmp_path) as running, open_client(running) as web:
        known = {
            register(web, f"s{number}-value", record(f"f{number}"))["id"]: f"s{number}-value" for number in range(20)
        }
        web.put("/config", json={"compatibility": "FULL"})
        web.delete("/subjects/s3-value")
        running.process.kill()
        running.process.wait(10)
    with testing.broker(data_dir=tmp_path) as running, open_client(running) as web:
        for ident, subject in known.items():
            assert web.get(f"/schemas/ids/{ident}/subjects?deleted=true").json() == [subject]
        assert "s3-value" not in web.get("/subjects").json()
        assert web.get("/config").json() == {"compatibilityLevel": "FULL"}
        assert register(web, "next", record("next"))["id"] == max(known) + 1


def test_rights_are_those_on_the_topic(tmp_path: Path) -> None:
    rules = [rule("ann", Right.WRITE, "orders"), rule("bob", Right.READ, "orders")]
    with broker_with_users(tmp_path, rules) as (running, _):
        root, ann, bob = (open_client(running, name) for name in ("root", "ann", "bob"))
        stranger = open_client(running)
        assert refused(stranger.get("/subjects")) == (401, 40101)
        assert refused(stranger.get("/nothing")) == (401, 40101)
        order = register(ann, "orders-value", record("a"))
        assert refused(bob.post("/subjects/orders-value/versions", json=record("a"))) == (403, 40301)
        assert bob.get(f"/schemas/ids/{order['id']}?subject=orders-value").status_code == 200
        assert bob.post("/subjects/orders-value", json=record("a")).json()["id"] == order["id"]
        hidden = register(root, "secret-value", record("s"))
        for client in (ann, bob):
            assert refused(client.get("/subjects/secret-value/versions")) == (403, 40301)
            assert refused(client.get(f"/schemas/ids/{hidden['id']}")) == (404, 40403)
            assert refused(client.get(f"/schemas/ids/{hidden['id']}?subject=secret-value")) == (404, 40403)
            assert refused(client.get(f"/schemas/guids/{hidden['guid']}")) == (404, 40403)
            assert client.get("/subjects").json() == ["orders-value"]
            assert [one["subject"] for one in client.get("/schemas").json()] == ["orders-value"]
            assert refused(client.delete("/subjects/orders-value")) == (403, 40301)
            assert refused(client.put("/config", json={"compatibility": "NONE"})) == (403, 40301)
            assert refused(client.put("/mode/orders-value", json={"mode": "IMPORT"})) == (403, 40301)
        assert refused(ann.post("/subjects/secret-value/versions", json=record("a"))) == (403, 40301)
        assert root.get("/subjects").json() == ["orders-value", "secret-value"]
        assert root.delete("/subjects/orders-value").json() == [1]


@pytest.mark.parametrize("path", ["versions", "check"])
def test_a_reference_takes_the_right_to_see_what_it_names(tmp_path: Path, path: str) -> None:
    """Else the fields of the other schema could be read by ``format=resolved``, or guessed."""
    with broker_with_users(tmp_path, [rule("ann", Right.ALL, "orders")]) as (running, _):
        root, ann = (open_client(running, name) for name in ("root", "ann"))
        hidden = {"type": "record", "name": "Hidden", "fields": [{"name": "salary", "type": "int"}]}
        register(root, "secret-value", {"schema": json.dumps(hidden)})
        places = {
            "versions": "/subjects/orders-value/versions",
            "check": "/compatibility/subjects/orders-value/versions?verbose=true",
        }
        texts = []
        for subject in ("secret-value", "absent-value"):
            body = {"schema": '"Hidden"', "references": [{"name": "Hidden", "subject": subject, "version": 1}]}
            response = ann.post(places[path], json=body)
            assert refused(response) == (422, 42201)
            texts.append(response.text.replace(subject, "NAMED"))
        assert texts[0] == texts[1] and "No schema reference found" in texts[0]
        assert ann.get("/subjects").json() == []
        # what one may see can be referred to
        assert root.post("/subjects/orders-key/versions", json={"schema": json.dumps(hidden)}).status_code == 200
        body["references"] = [{"name": "Hidden", "subject": "orders-key", "version": 1}]
        assert ann.post("/subjects/orders-value/versions", json=body).status_code == 200


def test_any_body_gets_an_error_of_the_api(web: httpx.Client, full: bool) -> None:
    chance = random.Random(41)
    base = json.dumps({
        "schema": json.dumps({"type": "record", "name": "R", "fields": [
            {"name": "a", "type": ["null", "int"], "default": None}]}),
        "schemaType": "AVRO", "references": [{"name": "n", "subject": "s", "version": 1}], "metadata": {},
    })  # fmt: skip
    odd = ["null", "[]", "{}", "-1", "1e999", '"\\ud800"', "9" * 400, '"' + "[" * 2000 + '"', "[" * 5000, "true"]
    paths = ["/subjects/fuzz/versions", "/subjects/fuzz", "/compatibility/subjects/fuzz/versions/latest"]
    puts = ["/config/fuzz", "/mode/fuzz"]
    for _ in range(20_000 if full else 400):
        text = base
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(text))
            end = min(len(text), at + chance.randrange(12))
            text = text[:at] + chance.choice([*odd, "", chr(chance.randrange(1, 256))]) + text[end:]
        method, path = chance.choice([("POST", one) for one in paths] + [("PUT", one) for one in puts])
        response = web.request(method, path, content=text.encode("utf-8", "surrogatepass"))
        assert response.status_code < 500, (path, text, response.text)
        if response.status_code >= 400:
            refused(response)


def test_a_comparison_that_takes_too_long_has_the_code_of_an_invalid_schema(web: httpx.Client, subject: str) -> None:
    def branches(prefix: str) -> dict[str, str]:
        parts = [{"type": "record", "name": f"{prefix}{number}", "fields": []} for number in range(800)]
        return {"schema": json.dumps(parts)}

    register(web, subject, branches("a"))
    for path in (f"/subjects/{subject}/versions", f"/compatibility/subjects/{subject}/versions/latest"):
        response = web.post(path, json=branches("b"), timeout=60)
        assert "too complex" in response.text
        assert refused(response) == (422, 42201)


NUMBERS = {f"k{number}": number for number in range(10_000)}
UNSTORABLE = {
    "too long": json.dumps(NUMBERS),
    "half of a surrogate pair": '{"a": "\\ud800"}',
    "not a number": '{"a": NaN}',
    "infinite": '{"a": [-Infinity]}',
}


@pytest.mark.parametrize("extra", UNSTORABLE.values(), ids=UNSTORABLE)
def test_metadata_and_settings_are_short_and_are_json(web: httpx.Client, subject: str, extra: str) -> None:
    # each lookup reads them in the event loop: 10 MB took 0.3 to 1 s of it, again for each small request
    web.put(f"/config/{subject}", json={"compatibility": "NONE", "alias": "other"})
    texts = {
        ("POST", f"/subjects/{subject}/versions"): f'{{"schema": "\\"int\\"", "metadata": {extra}}}',
        ("POST", f"/subjects/{subject}"): f'{{"schema": "\\"int\\"", "ruleSet": {extra}}}',
        ("PUT", f"/config/{subject}"): f'{{"overrideMetadata": {extra}}}',
        ("PUT", "/config"): f'{{"defaultRuleSet": {extra}}}',
    }
    for (method, path), text in texts.items():
        assert refused(web.request(method, path, content=text)) == (422, 422), path
    assert web.get(f"/config/{subject}").json() == {"compatibilityLevel": "NONE", "alias": "other"}


def test_settings_that_are_short_each_are_bounded_together(web: httpx.Client, subject: str) -> None:
    half = {f"k{number}": "v" * 100 for number in range(350)}
    assert web.put(f"/config/{subject}", json={"defaultMetadata": half}).status_code == 200
    assert refused(web.put(f"/config/{subject}", json={"overrideMetadata": half})) == (422, 422)
    assert (
        web.put(f"/config/{subject}", json={"defaultMetadata": {"a": 1}, "overrideMetadata": half}).status_code == 200
    )


def test_names_of_references_are_bounded_together(web: httpx.Client, subject: str) -> None:
    references = [{"name": "n" * 4_000, "subject": subject, "version": 1} for _ in range(100)]
    register(web, subject, record("a"))
    assert refused(web.post(f"/subjects/{subject}-2/versions", json={**record("b"), "references": references})) == (
        422,
        422,
    )


def test_a_list_of_schemas_is_bounded_by_the_length_of_their_texts(web: httpx.Client, subject: str) -> None:
    # 40 subjects with one schema of 9 MB were 360 MB of response, which was in memory twice
    doc = "x" * 9_000_000
    large = json.dumps({"schema": json.dumps({"type": "record", "name": "R", "doc": doc, "fields": []})})
    for number in range(4):
        assert web.post(f"/subjects/{subject}-{number}/versions", content=large, timeout=60).status_code == 200
    query = {"subjectPrefix": subject}
    response = web.get("/schemas", params=query, timeout=60)
    assert refused(response) == (422, 422)
    assert "limit and offset" in response.text
    listed = web.get("/schemas", params=query | {"limit": "1", "offset": "3"}, timeout=60).json()
    assert [one["subject"] for one in listed] == [f"{subject}-3"]


def test_a_list_of_subjects_gives_way_while_rights_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100,000 subjects the rights take a second, in which nothing else was served."""
    catalog = Catalog(tmp_path / "catalog.sqlite")
    fill_registry(SchemaTable(catalog), 3_000)
    broker = SimpleNamespace(schemas=SchemaRegistry(SchemaTable(catalog)), access=None)
    routes: Any = SchemaRegistryRoutes(SimpleNamespace(broker=broker))  # type: ignore[arg-type]
    passes, seen = 0, set[int]()

    def may_see(request: Request, subject: str) -> bool:
        # one right in 10 us
        begun = time.perf_counter()
        while time.perf_counter() - begun < 1e-5:
            pass
        seen.add(passes)
        return subject.startswith("team-0")

    async def count_passes() -> None:
        nonlocal passes
        while True:
            passes += 1
            await asyncio.sleep(0)

    async def list_subjects() -> list[str]:
        counting = asyncio.ensure_future(count_passes())
        request = Request({"type": "http", "method": "GET", "query_string": b"", "headers": []})
        found: list[str] = await routes._list_subjects(request, {})
        counting.cancel()
        return found

    monkeypatch.setattr(routes, "_may_see", may_see)
    assert len(asyncio.run(list_subjects())) == 300
    catalog.close()
    # 30 ms of rights in turns of 2 ms
    assert len(seen) >= 10


def read_anonymous_mb(process: int) -> float:
    """Return the memory that a process took for itself."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))


def fill_registry(table: SchemaTable, count: int) -> None:
    """Register schemas, each of a subject of its own: ten teams have the same number of topics."""
    for number in range(count):
        document = {"type": "record", "name": f"R{number}", "fields": [{"name": "a", "type": "long"}]}
        text = json.dumps(document, separators=(",", ":"))
        digest = digest_schema("AVRO", text, {})
        row = SchemaRow(0, make_guid(text, {}, digest), digest, "AVRO", text, {})
        table.add_version(f"team-{number % 10}.topic-{number:06d}-value", 1, row, [], [])


@pytest.mark.timeout(600)
def test_a_registry_of_many_schemas(tmp_path: Path, full: bool) -> None:
    """It starts as fast as an empty one, holds none of them in memory, and lists those that a user may see."""
    count = 100_000 if full else 2_000
    started_s, memory_mb = [], []
    rules = [rule("ann", Right.DESCRIBE, "team-3.*"), rule("bob", Right.READ, "team-4.topic-000004")]
    for schemas in (0, count):
        data = tmp_path / str(schemas)
        add_users(data, rules)
        catalog = Catalog(data / "catalog.sqlite")
        begun = time.perf_counter()
        fill_registry(SchemaTable(catalog), schemas)
        catalog.close()
        filled_s = time.perf_counter() - begun
        begun = time.perf_counter()
        with testing.broker(data) as running, open_client(running, "root", LISTED_S) as root:
            started_s.append(time.perf_counter() - begun)
            memory_mb.append(read_anonymous_mb(running.process.pid))
            if not schemas:
                continue
            begun = time.perf_counter()
            assert len(root.get("/subjects").json()) == count
            listed_s = time.perf_counter() - begun
            some = root.get("/schemas", params={"offset": count - 5, "limit": 3}).json()
            assert [one["id"] for one in some] == sorted(one["id"] for one in some) and len(some) == 3
            last = root.get(f"/schemas/ids/{count}").json()
            begun = time.perf_counter()
            assert register(root, "team-9.new-value", record("new"))["id"] == count + 1
            registered_s = time.perf_counter() - begun
            assert register(root, "team-9.again-value", {"schema": last["schema"]})["id"] == count
            with open_client(running, "ann", LISTED_S) as ann, open_client(running, "bob", LISTED_S) as bob:
                names = ann.get("/subjects").json()
                assert len(names) == count // 10 and all(name.startswith("team-3.") for name in names)
                assert bob.get("/subjects").json() == ["team-4.topic-000004-value"]
                assert [one["subject"] for one in bob.get("/schemas").json()] == ["team-4.topic-000004-value"]
                assert refused(bob.get(f"/schemas/ids/{count}")) == (404, 40403)
            grown_mb = read_anonymous_mb(running.process.pid) - memory_mb[1]
    print(
        f"{count:,} schemas, written in {filled_s:.1f} s: start {started_s[0]:.2f} s empty, {started_s[1]:.2f} s with "
        f"them; {memory_mb[0]:.0f} and {memory_mb[1]:.0f} MB, {grown_mb:.0f} MB more after lists; subjects listed in "
        f"{listed_s:.2f} s, one registered in {registered_s * 1e3:.0f} ms"
    )
    assert memory_mb[1] - memory_mb[0] < 20, "schemas are read from disk when they are asked for"
