"""What the console's server answers: exact bytes, pages that fit together, sentences for what is wrong."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from lading import testing
from lading.client.consumer import Consumer
from lading.client.producer import Producer
from lading.console.documents import LIST_PATHS_MAX, list_paths
from lading.console.server import routes_of
from lading.console.settings import ConsoleSettings
from lading.console.source import ConsoleSource
from lading.mirror.run import run_mirror
from lading.mirror.settings import MirrorSettings
from lading.model.address import Address
from lading.model.errors import LocalError
from lading.registry.client import RegistryAddress, RegistryClient
from lading.serve.companion import Companion
from lading.serve.local_server import listen
from lading.settings.loading import load
from lading.transports.lading.transport import LadingTransport
from lading.transports.open import holds_secret

from .conftest import SCRIPT, TestClient, client, run_pipeline


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


@pytest.mark.parametrize("order", ["new", "old"])
def test_the_earliest_and_the_latest_have_an_order_of_their_own(page: TestClient, order: str) -> None:
    query = {"topic": "flights", "order": order, "count": 3}
    earliest = documents(page, "/api/messages", at="earliest", **query)
    assert (offsets(earliest), earliest[-1]["order"], earliest[-1]["next"]) == ([0, 1, 2], "old", "0:3")
    latest = documents(page, "/api/messages", at="latest", **query)
    assert (offsets(latest), latest[-1]["order"], latest[-1]["next"]) == ([299, 298, 297], "new", "0:297")


@pytest.mark.parametrize(("order", "wanted"), [("new", list(range(299, 199, -1))), ("old", list(range(200, 300)))])
def test_the_last_hundred_are_a_hundred_in_either_order(page: TestClient, order: str, wanted: list[int]) -> None:
    seen: list[int] = []
    ends: list[tuple[int, int]] = []
    at: str | None = "-100"
    kept: dict[str, str] = {}
    while at is not None:
        found = documents(page, "/api/messages", topic="flights", order=order, count=70, at=at, **kept)
        seen += offsets(found)
        ends.append((found[-1]["looked_at"], found[-1]["total"]))
        at, kept = found[-1]["next"], {name: found[-1][name] for name in ("since", "until")}
    assert (seen, ends[0][1], len(ends)) == (wanted, 100, 2)
    found = documents(page, "/api/messages", topic="flights", order=order, at="-10", where="delay < 275")
    assert (sorted(offsets(found)), found[-1]["total"]) == ([*range(290, 295)], 10)


def test_a_search_finds_the_newest_first_and_counts_all(page: TestClient) -> None:
    where = "carrier = 'AA' AND delay > 100"
    wanted = [number for number in range(300) if number % 3 == 0 and number - 20 > 100]
    found = documents(page, "/api/messages", topic="flights", where=where, count=5)
    assert offsets(found) == wanted[::-1][:5]
    rest = documents(page, "/api/messages", topic="flights", where=where, count=500, at=found[-1]["next"])
    assert offsets(rest) == wanted[::-1][5:]
    assert documents(page, "/api/count", topic="flights", where=where)[-1]["found"] == len(wanted)


def test_a_search_names_the_headers_that_no_message_has(page: TestClient) -> None:
    end = documents(page, "/api/messages", topic="flights", where="dely > 100 AND carrier = 'AA'")[-1]
    (sentence,) = end["unseen"]
    assert "has a header 'dely' (did you mean 'delay'?)" in sentence
    assert {"carrier", "delay"} <= set(end["names"])
    # each name is there, and no message has such a value
    assert documents(page, "/api/messages", topic="flights", where="delay > 1000000")[-1]["unseen"] == []
    assert "unseen" not in documents(page, "/api/messages", topic="flights", where="delay > 100")[-1]


def test_a_count_tells_how_far_it_is(
    page: TestClient, broker: testing.BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lading.console.counting.PROGRESS_S", -1.0)
    with closing(LadingTransport(broker.url)) as admin:
        admin.create_topic("eight", 8)
    with Producer(broker.url) as producer:
        for number in range(80):
            producer.send("eight", b"x", partition=number % 8, headers={"n": number})
    told = documents(page, "/api/count", topic="eight", where="n < 40")
    assert [one["looked_at"] for one in told] == [*range(10, 81, 10), 80]
    assert {one["total"] for one in told} == {80}
    assert [one["found"] for one in told] == [*range(5, 41, 5), 40]
    assert [one.get("end", False) for one in told] == [False] * 8 + [True]


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


def test_an_address_that_is_none_leads_back(page: TestClient) -> None:
    answer = page.get("/bogus")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert 'id="nav"' in answer.text
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    for path in ("/api/bogus", "/static/bogus.js"):
        answer = page.get(path)
        assert (answer.status_code, answer.json()["error"]) == (404, f"{path} does not exist")


def test_a_console_that_logs_in_needs_its_key(broker: testing.BrokerProcess, listener: socket.socket) -> None:
    guarded = client(ConsoleSettings(broker.url), listener, key="secret")
    refused = guarded.get("/api/topics")
    assert (refused.status_code, refused.json()["needs_key"]) == (403, True)
    # neither in the address, which other programs log, nor as a cookie, which browsers send to every port
    assert guarded.get("/api/topics?key=secret").status_code == 403
    assert guarded.get("/api/topics", headers={"cookie": "lading-console-key=secret"}).status_code == 403
    for wrong in ("", "wrong", "secretsecret", "\xfc"):
        headers = {"x-lading-console-key": wrong.encode("latin-1")}
        assert guarded.get("/api/topics", headers=headers).status_code == 403
    # an address of the API that does not exist is no way around it
    assert guarded.get("/api/bogus").status_code == 403
    assert guarded.post("/api/send", json={}).status_code == 403
    opened = guarded.get("/?key=secret")
    assert opened.status_code == 200 and "set-cookie" not in opened.headers
    assert guarded.get("/api/topics", headers={"x-lading-console-key": "secret"}).status_code == 200
    assert not guarded.cookies


@pytest.mark.parametrize(
    "path", ["//api/topics", "/%61pi/topics", "/API/topics", "/static/../api/topics", "/./api/topics"]
)
def test_no_other_spelling_goes_around_the_key(
    broker: testing.BrokerProcess, listener: socket.socket, path: str
) -> None:
    guarded = client(ConsoleSettings(broker.url), listener, key="secret")
    answer = guarded.get(path)
    assert answer.status_code in (403, 404) and "flights" not in answer.text


def test_secrets_are_seen_wherever_they_stand(broker: testing.BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not ConsoleSource(broker.url).holds_secret
    for ending in ("", "_file", "_env", "_command"):
        with monkeypatch.context() as here:
            here.setenv(f"LADING_TOKEN{ending.upper()}", "x")
            assert holds_secret(broker.url), ending
        if ending:
            assert holds_secret(f"{broker.url}?timeout_s=3&token{ending}=x"), ending
            assert holds_secret(f"kafka://127.0.0.1:9092?username=ann&password{ending}=x"), ending
    # a broker may take the user from the certificate of its client
    assert holds_secret("kafka://127.0.0.1:9092?tls=true&certificate_file=a.pem")
    assert not holds_secret("kafka://127.0.0.1:9092?tls=true&ca_file=a.pem")
    assert not holds_secret("./data")


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
        listen(Address("0.0.0.0", 0), "console")


def test_states_are_counted_then_set_and_hidden(page: TestClient) -> None:
    page.post(
        "/api/send", json={"topic": "stated", "message": {"payload": "x", "headers": [{"key": "a", "value": "1"}]}}
    )
    change = {"topic": "stated", "where": "a = '1'", "state": "poisoned"}
    assert page.post("/api/states", json=change | {"dry_run": True}).json()["matched"] == 1
    assert offsets(documents(page, "/api/messages", topic="stated")) == [0]
    assert page.post(
        "/api/states", json={"topic": "stated", "partition": 0, "offset": "0", "state": "poisoned"}
    ).is_success
    assert offsets(documents(page, "/api/messages", topic="stated")) == []
    assert [one["state"] for one in messages(documents(page, "/api/messages", topic="stated", states="all"))] == [
        "poisoned"
    ]


CHANGES = (
    "/api/send", "/api/states", "/api/dead-letters/redrive", "/api/quarantine/redrive", "/api/group/reset",
    "/api/group/delete", "/api/topic/create", "/api/topic/settings", "/api/topic/empty", "/api/topic/delete",
)  # fmt: skip


@pytest.mark.parametrize("path", CHANGES)
def test_nothing_changes_with_read_only_or_by_a_form(
    broker: testing.BrokerProcess, page: TestClient, listener: socket.socket, path: str
) -> None:
    watching = client(ConsoleSettings(broker.url, is_read_only=True), listener)
    answer = watching.post(path, json={"topic": "flights", "message": {"payload": "x"}, "dry_run": False})
    assert (answer.status_code, "--read-only" in answer.json()["error"]) == (403, True)
    assert watching.get("/api/about").json()["can_send"] is False
    assert page.post(path, data={"topic": "flights"}).status_code == 415
    assert page.get(path).status_code == 405


def test_every_change_is_one_that_read_only_turns_off(broker: testing.BrokerProcess, listener: socket.socket) -> None:
    settings = ConsoleSettings(broker.url)
    source = ConsoleSource(broker.url)
    routes = routes_of(settings, source)
    assert sorted(one.path for one in routes if one.methods and one.methods - {"GET", "HEAD"}) == sorted(CHANGES)


def test_dead_letters_are_counted_and_sent_back_once(page: TestClient, broker: testing.BrokerProcess) -> None:
    with Producer(broker.url) as producer:
        producer.send("bills", b"origin")
        for number in range(3):
            told = {
                "topic": "bills",
                "partition": "0",
                "offset": "0",
                "exception.class.name": "E<b>" if number else "F",
            }
            letter = {"tenant": "acme"} | {f"__connect.errors.{name}": text for name, text in told.items()}
            producer.send("bills-dlq", b"letter %d" % number, headers=letter)
        producer.send("bills-dlq", b"a stranger")
    found = documents(page, "/api/dead-letters", topic="bills-dlq")[-1]
    assert [(one["why"], one["messages"]) for one in found["bars"]] == [("E<b>", 2), ("F", 1)]
    assert (found["letters"], found["strangers"], found["rows"][0]["offset"]) == (3, 1, "2")
    change = {"topic": "bills-dlq", "where": "exception = 'E<b>'"}
    assert page.post("/api/dead-letters/redrive", json=change).json()["dry_run"] is True
    assert page.post("/api/dead-letters/redrive", json=change | {"dry_run": False}).json()["sent"] == 2
    assert (
        page.post("/api/dead-letters/redrive", json=change).json() | {"sent": 0, "already": 2}
        == page.post("/api/dead-letters/redrive", json=change).json()
    )
    with Consumer(broker.url, "bills", start=1, timeout_s=0) as consumer:
        assert [(message.payload, message.headers["tenant"]) for message in consumer] == [
            (b"letter 1", "acme"), (b"letter 2", "acme"),
        ]  # fmt: skip


def test_looks_in_the_explorer_are_shares_of_messages(page: TestClient, broker: testing.BrokerProcess) -> None:
    with Producer(broker.url) as producer:
        for number in range(250):
            # 5 of 250, and 1 of 250
            headers = {"delay": number if number % 50 else "abc", "day": "2024-05-01" if number == 9 else "x"}
            producer.send("looked-at", b"x", headers=headers)
    rows = documents(page, "/api/profile", topic="looked-at")[-1]["profile"]["headers"]
    assert {row["key"]: row["looks"] for row in rows} == {
        "delay": "integer 98 %, text 2 %", "day": "text > 99 %, date < 1 %",
    }  # fmt: skip


def test_a_profile_with_a_pipeline_that_is_broken(
    broker: testing.BrokerProcess, listener: socket.socket, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("[source]\nform = 1\n")
    page = client(ConsoleSettings(broker.url, pipelines=(broken,)), listener)
    profile = documents(page, "/api/profile", topic="flights")[-1]["profile"]
    assert (profile["messages"], {row["key"] for row in profile["headers"]}) == (300, {"carrier", "delay"})
    assert "[headers]" in profile["contract"]
    assert "form" in profile["drift"][0]["error"]
    assert "form" in ask(page, "/api/pipelines")["pipelines"][0]["error"]
    assert "form" in page.get("/api/quarantine", params={"pipeline": str(broken)}).json()["error"]
    assert "--pipeline" in page.get("/api/quarantine", params={"pipeline": "/etc/passwd"}).json()["error"]


def test_runs_of_a_pipeline_with_its_quarantine(
    full: bool, broker: testing.BrokerProcess, listener: socket.socket, tmp_path: Path
) -> None:
    if not full:
        pytest.skip("runs a pipeline, two seconds of CPU: only with LADING_TEST_FULL=1")
    file = run_pipeline(broker.url, tmp_path)
    page = client(ConsoleSettings(broker.url, pipelines=(file,)), listener)
    (pipeline,) = ask(page, "/api/pipelines")["pipelines"]
    totals = [pipeline["totals"].get(name, 0) for name in ("read", "good", "quarantined")]
    assert totals == [300, 200, 100]
    assert sum(batch["good"] for batch in pipeline["batches"]) == 200
    assert pipeline["reasons"] == [{"reason": "value_not_allowed", "header": "carrier", "messages": 100}]
    found = ask(page, "/api/quarantine", pipeline=str(file), where="delay > 100")
    assert [(bar["reason"], bar["messages"]) for bar in found["bars"]] == [("value_not_allowed", 59)]
    one = ask(page, "/api/quarantined", pipeline=str(file), message="flights/0/3")
    assert (one["reasons"][0]["reason"], one["message"]["offset"], one["message"]["headers"][0]["text"]) == (
        "value_not_allowed", "3", None,
    )  # fmt: skip
    assert page.post("/api/quarantine/redrive", json={"pipeline": str(file)}).json()["sent"] == 100


def test_a_mirror_and_its_report(broker: testing.BrokerProcess, listener: socket.socket, tmp_path: Path) -> None:
    copied = {"flights": "flights-copy"}
    settings = MirrorSettings(
        broker.url, broker.url, ("flights",), (), copied, fidelity=True, state=tmp_path / "state"
    )  # fmt: skip
    report = tmp_path / "fidelity.json"
    report.write_text(json.dumps(run_mirror(settings).as_document()))
    wrong = tmp_path / "wrong.json"
    wrong.write_text("[1]")
    page = client(ConsoleSettings(broker.url, mirrors=(tmp_path / "state", report, wrong)), listener)
    state, fidelity, nothing = ask(page, "/api/mirrors")["mirrors"]
    assert (state["source"], state["topics"], state["running"]) == (
        broker.url, [{"topic": "flights", "messages": 300, "partitions": 1}], False,
    )  # fmt: skip
    assert {row["lost"] for row in fidelity["fidelity"]} == {0}
    assert "neither" in nothing["error"]


def test_what_a_mirror_keeps_in_its_target_is_no_lag(
    broker: testing.BrokerProcess, listener: socket.socket, tmp_path: Path
) -> None:
    target = f"kafka://{broker.endpoints['kafka']}"
    with Producer(broker.url) as producer:
        producer.send("mirrored", b"x")
    run_mirror(MirrorSettings(broker.url, target, ("mirrored",), (), {"mirrored": "mirror"}, state=tmp_path / "state"))
    page = client(ConsoleSettings(broker.url), listener)
    (group,) = ask(page, "/api/topic", topic="mirror")["groups"]
    assert group["group"].startswith("lading-decisions-lading-mirror-")
    assert (group["lag"], group["members"]) == (None, [])
    assert {row["name"]: row["lag"] for row in ask(page, "/api/topics")["topics"]}["mirror"] is None
    # a group that reads has its lag beside it
    with Consumer(broker.url, "mirror", group="readers", auto_commit=False) as consumer:
        consumer.seek(0, 0)
        consumer.commit()
    page = client(ConsoleSettings(broker.url), listener)
    end = int(ask(page, "/api/topic", topic="mirror")["partitions"][0]["end_offset"])
    assert {row["name"]: row["lag"] for row in ask(page, "/api/topics")["topics"]}["mirror"] == end > 0


def test_a_broker_starts_its_console_and_ends_it(full: bool, tmp_path: Path) -> None:
    if not full:
        pytest.skip("starts a broker and a console, three seconds of CPU: only with LADING_TEST_FULL=1")
    words = ["serve", "--data", str(tmp_path / "data"), "--free-ports", "--console", "-o", "json", "--with-parent"]
    token = {"LADING__ENDPOINTS__ADMIN__TOKEN": "secret"}
    with subprocess.Popen(
        [sys.executable, "-m", "lading.cli.main", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env=os.environ | token,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        address = json.loads(process.stdout.readline())["endpoints"]["console"]
        # the console logs in with the broker's token, and so asks for a key, which only the terminal has
        assert httpx.get(f"http://{address}/api/topics", timeout=30).status_code == 403
        process.terminate()
        said = process.stderr.read()
        key = said.partition(f"http://{address}/#key=")[2].split()[0]
        assert len(key) > 20
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://{address}/")


def test_the_console_of_an_encrypted_broker_trusts_its_certificate(full: bool, tmp_path: Path) -> None:
    if not full:
        pytest.skip("starts a broker and a console, three seconds of CPU: only with LADING_TEST_FULL=1")
    words = ["serve", "--data", str(tmp_path / "my data"), "--free-ports", "--console", "-o", "json", "--with-parent"]
    with subprocess.Popen(
        [sys.executable, "-m", "lading.cli.main", *words, "--set", "endpoints.admin.tls.enabled=true"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["endpoints"]["console"]
        # no secret: the certificate is a file that this user can read
        assert httpx.get(f"http://{address}/api/topics", timeout=30).json()["topics"] == []
        process.terminate()


def test_a_broker_that_asks_for_certificates_starts_no_console(tmp_path: Path) -> None:
    keys = ["endpoints.admin.tls.enabled=true", f"endpoints.admin.tls.client_ca={tmp_path}/ca.pem"]
    with pytest.raises(LocalError, match="certificate_file=FILE"):
        Companion("console", "--console", Address("127.0.0.1", 0), load(None, keys, {}).settings)


def test_members_of_payloads_are_columns_and_conditions(page: TestClient) -> None:
    found = documents(page, "/api/messages", topic="flights", where="payload.n >= 298", column="payload.big", count=9)
    assert sorted(offsets(found)) == [298, 299]
    assert [one["paths"] for one in messages(found)] == [["payload.n", "payload.big"]] * 2
    assert messages(found)[0]["members"]["payload.big"] == {
        "text": "12345678901234567890", "form": "text", "bytes": 20, "cut": False,
    }  # fmt: skip
    hostile = messages(documents(page, "/api/messages", topic="hostile", column="payload.a", count=9))
    assert [(one["paths"], one["members"]) for one in hostile] == [([], {"payload.a": None})] * 3


def test_paths_of_payloads_are_few() -> None:
    assert list_paths(b' {"a": {"b c": {"d": {"e": {"f": 1}}}}, "x": [], "y": {}}') == [
        'payload.a."b c".d.e', "payload.x", "payload.y",
    ]  # fmt: skip
    wide = json.dumps({f"m{number}": number for number in range(100)}).encode()
    assert len(list_paths(wide)) == LIST_PATHS_MAX
    for payload in (None, b"", b"[1]", b"{", b'{"a":' * 60_000, b"{" + b" " * 70_000 + b"}"):
        assert list_paths(payload) == []


def test_a_payload_that_names_its_schema_is_shown_decoded(
    broker: testing.BrokerProcess, listener: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    url = f"http://{broker.endpoints['schema_registry']}"
    registry = RegistryClient(RegistryAddress(url))
    avro = registry.register(
        "decoded_orders-value", "AVRO", '{"type":"record","name":"R","fields":[{"name":"n","type":"long"}]}'
    )
    proto = registry.register("decoded_cities-value", "PROTOBUF", 'syntax = "proto3"; message C { string name = 1; }')
    text = registry.register("decoded_texts-value", "JSON", '{"type":"object"}')
    payloads = [
        (avro, b"\x0e"), (proto, b"\x00\x0a\x04Rome"), (text, b'{"a": 12345678901234567890}'), (avro, b""),
        (9_999, b"x"),
    ]  # fmt: skip
    with Producer(broker.url) as producer:
        for schema_id, payload in payloads:
            producer.send("decoded", b"\0" + schema_id.to_bytes(4, "big") + payload, partition=0)
        producer.send("decoded", b"plain", partition=0)
    page = client(ConsoleSettings(broker.url, registry=url), listener)
    decoded = [page.get(f"/api/message?topic=decoded&partition=0&offset={at}").json()["decoded"] for at in range(6)]
    assert [(one["schema"], one["text"], one["problem"]) if one else None for one in decoded] == [
        (f"AVRO id {avro}", '{"n":7}', None), (f"PROTOBUF id {proto}", '{"name":"Rome"}', None),
        (f"JSON id {text}", '{"a": 12345678901234567890}', None),
        (f"AVRO id {avro}", None, "the payload is empty (byte 5)"),
        ("id 9999", None, "the schema does not exist in the registry"), None,
    ]  # fmt: skip
    assert decoded[0]["url"] == f"{url}/schemas/ids/{avro}"
    assert page.get("/api/message?topic=decoded&partition=0&offset=0").status_code == 200
    away = client(ConsoleSettings(broker.url, registry="http://127.0.0.1:9"), listener)
    monkeypatch.setattr("lading.registry.client.PAUSE_S", 0.0)
    shown = away.get("/api/message?topic=decoded&partition=0&offset=0").json()
    assert shown["payload"] and "cannot be reached" in shown["decoded"]["problem"]
