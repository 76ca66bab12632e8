"""What the console's server answers: exact bytes, pages that fit together, sentences for what is wrong."""

from __future__ import annotations

import base64
import json
import socket
from typing import Any

import pytest

from lading import testing
from lading.console.server import listen
from lading.console.settings import ConsoleSettings
from lading.console.source import ConsoleSource
from lading.model.address import Address
from lading.model.errors import LocalError

from .conftest import SCRIPT, TestClient, client


def ask(page: TestClient, path: str, **query: Any) -> Any:
    answer = page.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def documents(page: TestClient, path: str, **query: Any) -> list[dict[str, Any]]:
    answer = page.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def messages(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for document in found for one in document.get("messages", [])]


def offsets(found: list[dict[str, Any]]) -> list[int]:
    return [int(one["offset"]) for one in messages(found)]


def test_topics_with_size_and_damage(page: TestClient) -> None:
    rows = {row["name"]: row for row in ask(page, "/api/topics")["topics"]}
    assert (rows["flights"]["messages"], rows["flights"]["partitions_count"], rows["flights"]["damage"]) == (300, 1, [])
    assert rows["hostile"]["size_bytes"] > 1_000_000


def test_pages_follow_one_another_in_both_directions(page: TestClient) -> None:
    for order, expected in (("new", list(range(299, -1, -1))), ("old", list(range(300)))):
        seen: list[int] = []
        at: str | None = ""
        while at is not None:
            found = documents(page, "/api/messages", topic="flights", order=order, count=70, at=at)
            seen += offsets(found)
            at = found[-1]["next"]
        assert seen == expected


@pytest.mark.parametrize(
    ("at", "order", "first"),
    [("120", "old", 120), ("120", "new", 120), ("-10", "old", 290), ("earliest", "old", 0), ("latest", "new", 299),
     ("2013-01-01T01:00+00:00", "old", 60), ("2013-01-01T01:00+00:00", "new", 59)],
)  # fmt: skip
def test_a_page_begins_at_an_offset_or_a_time(page: TestClient, at: str, order: str, first: int) -> None:
    assert offsets(documents(page, "/api/messages", topic="flights", at=at, order=order, count=3))[0] == first


def test_a_search_finds_the_newest_first_and_counts_all(page: TestClient) -> None:
    where = "carrier = 'AA' AND delay > 100"
    wanted = [number for number in range(300) if number % 3 == 0 and number - 20 > 100]
    found = documents(page, "/api/messages", topic="flights", where=where, count=5)
    assert offsets(found) == wanted[::-1][:5]
    rest = documents(page, "/api/messages", topic="flights", where=where, count=500, at=found[-1]["next"])
    assert offsets(rest) == wanted[::-1][5:]
    assert documents(page, "/api/count", topic="flights", where=where)[-1]["found"] == len(wanted)


def test_a_search_that_cannot_be_parsed_shows_the_place(page: TestClient) -> None:
    answer = page.get("/api/messages", params={"topic": "flights", "where": "carrier = 'UA' AND AND delay"})
    assert answer.status_code == 400
    assert answer.json()["at"] == 19
    assert "\n" in answer.json()["error"]


@pytest.mark.parametrize("at", ["0:", "x", "1:2:3", "0:9999999999999999999999999999999999999999", "²", "9" * 30])
def test_a_place_that_is_none_is_refused_with_a_sentence(page: TestClient, at: str) -> None:
    answer = page.get("/api/messages", params={"topic": "flights", "at": at})
    assert "PARTITION:OFFSET" in answer.text


def test_a_message_has_every_kind_and_byte(page: TestClient) -> None:
    whole = ask(page, "/api/message", topic="hostile", partition=0, offset=1)
    assert base64.b64decode(whole["payload"]) == b"\x00\xff"
    kinds = [(one["key"], one["kind"], base64.b64decode(one["value"])) for one in whole["headers"]]
    assert kinds == [
        ("big", "string", b"x" * 1_000_000),
        ("a", "string", b"1"),
        ("a", "uint8", b"\x02"),
        ("a", "string", b""),
    ]
    first = ask(page, "/api/message", topic="hostile", partition=0, offset=0)
    assert [(one["key"], one["value"]) for one in first["headers"]][1:] == [("raw", "/wA="), ("nul", None)]
    assert first["headers"][0]["key"] == SCRIPT


def test_a_list_of_huge_messages_is_small_but_has_the_columns(page: TestClient) -> None:
    answer = page.get("/api/messages", params={"topic": "hostile", "column": "h9999"})
    assert len(answer.content) < 50_000
    many = messages([json.loads(line) for line in answer.text.splitlines()])[0]
    assert many["headers_count"] == 10_000
    assert many["headers"][-1] == ["h9999", "uint16", "9999", 2, "text"]


def test_an_offset_without_a_message_is_a_sentence(page: TestClient) -> None:
    answer = page.get("/api/message", params={"topic": "flights", "partition": 0, "offset": 300})
    assert (answer.status_code, "no message at offset 300" in answer.json()["error"]) == (400, True)
    assert page.get("/api/topic", params={"topic": "flihgts"}).json()["error"].count("flights")


@pytest.mark.parametrize(
    "headers",
    [{"host": "rebound.example"}, {"origin": "http://evil.example"}, {"origin": "null"},
     {"sec-fetch-site": "cross-site"}],
)  # fmt: skip
def test_pages_of_other_sites_are_refused(page: TestClient, headers: dict[str, str]) -> None:
    assert page.get("/api/topics", headers=headers).status_code == 403
    assert page.get("/", headers=headers).status_code == 403


def test_nothing_that_stands_in_the_document_is_a_program(page: TestClient) -> None:
    policy = page.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy.replace("https:", "http:")


def test_a_console_that_logs_in_needs_its_key(broker: testing.BrokerProcess, listener: socket.socket) -> None:
    guarded = client(ConsoleSettings(broker.url), listener, key="secret")
    assert guarded.get("/api/topics").status_code == 403
    assert guarded.get("/?key=wrong").status_code == 403
    opened = guarded.get("/?key=secret")
    assert (opened.status_code, opened.headers["location"]) == (303, "/")
    assert "HttpOnly" in opened.headers["set-cookie"]
    assert guarded.get("/api/topics").status_code == 200


def test_secrets_are_seen_wherever_they_stand(broker: testing.BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not ConsoleSource(broker.url).holds_secret
    monkeypatch.setenv("LADING_TOKEN", "x")
    assert ConsoleSource(broker.url).holds_secret


def test_a_server_that_is_away_is_named_and_found_again(listener: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"lading://127.0.0.1:{taken.getsockname()[1]}"
    page = client(ConsoleSettings(url), listener)
    answer = page.get("/api/topics")
    assert (answer.status_code, answer.json()["unreachable"]) == (502, True)


def test_queues_and_addresses_of_others_are_refused() -> None:
    with pytest.raises(LocalError, match="is a queue"):
        ConsoleSource("nsq://127.0.0.1:4150")
    with pytest.raises(LocalError, match="this machine only"):
        listen(Address("0.0.0.0", 0))
