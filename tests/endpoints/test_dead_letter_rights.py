"""The topic that a setting names: rights on it are asked of its setter, when it is set and when it is used."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from lading.broker.core.access.rights import Right
from lading.testing import BrokerProcess
from tests.endpoints.identity import broker_with_users, rule
from tests.endpoints.nsq_client import NsqClient
from tests.endpoints.test_http_users import client
from tests.endpoints.test_nsqd_users import auth

Started = tuple[BrokerProcess, dict[str, str]]
RULES = [
    rule("ann", Right.ALL, "mine*"),
    rule("ann", Right.WRITE, "drop-*"),
    rule("ann", Right.READ, "seen"),
    # who may create and set, but not read
    rule("bob", Right.CREATE, "blind*"),
    rule("bob", Right.ALTER_CONFIGS, "blind*"),
    rule("bob", Right.WRITE, "blind*"),
    rule("bob", Right.ALL, "dead*"),
]
TO_DROP = {"user": "ann", "kind": "topic", "pattern": "prefix", "name": "drop-", "operation": "write"}


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    with broker_with_users(tmp_path_factory.mktemp("letters") / "data", RULES) as found:
        root = client(found[0], bearer=found[1]["root"])
        for topic in ("mine", "seen", "secret", "blind", "drop-there", "mine-there"):
            assert root.post(f"/topics/default/{topic}", json={}).status_code == 201
        yield found


def settings_of(http: httpx.Client, topic: str) -> Any:
    return http.get(f"/topics/default/{topic}").json()["settings"]


def names_of(root: httpx.Client) -> list[str]:
    return [row["name"] for row in root.get("/topics").json()]


def next_offset(root: httpx.Client, topic: str) -> int:
    answer = root.get(f"/topics/default/{topic}")
    return 0 if answer.status_code == 404 else int(answer.json()["partitions"][0]["next_offset"])


def publish(started: Started, topic: str) -> None:
    nsqd = client(started[0], "nsqd_http", bearer=started[1]["root"])
    assert nsqd.post(f"/pub?topic={topic}", content=b"x").text == "OK"


def mark(http: httpx.Client, topic: str) -> httpx.Response:
    """Mark everything poisoned that is not yet so."""
    wanted = {"state": "poisoned", "first": 0, "end": next_offset(http, topic)}
    return http.put(f"/topics/default/{topic}/0/states", json=wanted)


def wait_for(root: httpx.Client, topic: str, offset: int) -> None:
    until_s = time.monotonic() + 30
    while next_offset(root, topic) < offset:
        assert time.monotonic() < until_s, "no copy came"
        time.sleep(0.02)


@pytest.mark.parametrize("target", ["secret", "seen", "absent", "drop-absent", "other.topic"])
def test_who_sets_it_has_to_be_allowed_to_write_to_it_and_to_create_it(started: Started, target: str) -> None:
    running, tokens = started
    root, ann = (client(running, bearer=tokens[name]) for name in ("root", "ann"))
    before = names_of(root)
    answers = [
        ann.put("/topics/default/mine/settings", json={"dead_letter_topic": target, "attempts_max": 3}),
        ann.post("/topics/default/mine-new", json={"settings": {"dead_letter_topic": target}}),
    ]
    for answer in answers:
        assert (answer.status_code, answer.json()["reason"]) == (403, "unauthorized")
    assert settings_of(root, "mine") == {}
    assert names_of(root) == before


def test_a_refusal_does_not_show_whether_the_target_exists(started: Started) -> None:
    ann = client(started[0], bearer=started[1]["ann"])
    one, other = (
        ann.put("/topics/default/mine/settings", json={"dead_letter_topic": name}).text for name in ("secret", "absent")
    )
    assert one.replace("secret", "absent") == other


def test_who_sets_it_has_to_be_allowed_to_read_what_is_copied(started: Started) -> None:
    running, tokens = started
    root, bob = (client(running, bearer=tokens[name]) for name in ("root", "bob"))
    for answer in (
        bob.put("/topics/default/blind/settings", json={"dead_letter_topic": "dead"}),
        bob.post("/topics/default/blind-new", json={"settings": {"dead_letter_topic": "dead"}}),
    ):
        assert answer.status_code == 403 and "read" in answer.json()["message"]
    assert settings_of(root, "blind") == {} and "blind-new" not in names_of(root)
    # what names nothing needs no other right
    assert bob.put("/topics/default/blind/settings", json={"attempts_max": 3}).status_code == 200
    assert root.put("/topics/default/blind/settings", json={"attempts_max": None}).status_code == 200


def test_the_setter_is_no_setting_of_clients(started: Started) -> None:
    running, tokens = started
    ann = client(running, bearer=tokens["ann"])
    for name in ("mine", "mine-2"):
        document = {"dead_letter_topic": "mine-there", "dead_letter_setter": 1}
        answer = ann.put(f"/topics/default/{name}/settings", json=document)
        assert answer.status_code in (400, 404)
        answer = ann.post("/topics/default/mine-3", json={"settings": document})
        assert answer.status_code == 400
    assert ann.post("/topics/default/mine-4", json={"settings": {"dead_letter_topic": "mine-5"}}).status_code == 201
    assert settings_of(ann, "mine-4") == {"dead_letter_topic": "mine-5"}
    assert "mine-5" not in names_of(ann)
    publish(started, "mine-4")
    assert mark(ann, "mine-4").status_code == 200
    wait_for(ann, "mine-5", 1)


def test_it_is_asked_again_when_it_is_used(started: Started) -> None:
    running, tokens = started
    root, ann = (client(running, bearer=tokens[name]) for name in ("root", "ann"))
    to_there = {"dead_letter_topic": "drop-there"}
    assert ann.put("/topics/default/mine/settings", json=to_there).status_code == 200
    publish(started, "mine")
    assert mark(ann, "mine").status_code == 200
    wait_for(root, "drop-there", 1)

    assert root.post("/rules", json={"delete": [TO_DROP]}).status_code == 204
    publish(started, "mine")
    for marker in (ann, root):
        refused = mark(marker, "mine")
        assert refused.status_code == 403
        assert refused.json()["message"].startswith("dead letter topic 'drop-there' of 'mine': the user who set it may")
    assert root.get("/topics/default/mine/0/states").json() == [{"first": 0, "end": 1, "state": "poisoned"}]
    # other settings leave its setter; nor may the same user set it again
    assert ann.put("/topics/default/mine/settings", json={"attempts_max": 1}).status_code == 200
    assert ann.put("/topics/default/mine/settings", json=to_there).status_code == 403
    assert mark(ann, "mine").status_code == 403
    # a channel keeps what it gives up until it can be copied
    reader = NsqClient(running.endpoints["nsqd_tcp"])
    auth(reader, tokens["root"])
    reader.send(b"SUB mine c\n")
    assert reader.frame() == (0, b"OK")
    reader.send(b"RDY 1\n")
    found = reader.message()
    reader.send(b"REQ " + found.id + b" 0\n")
    reader.close()
    time.sleep(0.3)
    assert next_offset(root, "drop-there") == 1
    assert root.post("/rules", json={"add": [TO_DROP]}).status_code == 204
    wait_for(root, "drop-there", 2)

    # what an administrator sets is his, whatever the rights of others
    assert root.put("/topics/default/mine/settings", json=to_there).status_code == 200
    assert root.post("/rules", json={"delete": [TO_DROP]}).status_code == 204
    publish(started, "mine")
    assert mark(ann, "mine").status_code == 200
    wait_for(root, "drop-there", 4)
    assert root.post("/rules", json={"add": [TO_DROP]}).status_code == 204
