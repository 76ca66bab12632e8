"""Logins over Iggy's HTTP: which tokens count, what each release is answered, and what strangers are."""

from __future__ import annotations

import base64
import json
import time
from typing import Any, Final

import httpx
import jwt
import pytest

from lading.endpoints.iggy.http.tokens import ACCESS, REFRESH, REFRESH_S, HttpTokens
from lading.model.errors import Refusal
from lading.testing import BrokerProcess

NOW_S = 1_800_000_000


@pytest.fixture
def http(broker: BrokerProcess) -> httpx.Client:
    return httpx.Client(base_url=f"http://{broker.endpoints['iggy_http']}", timeout=10)


def log_in(http: httpx.Client, version: str | None) -> dict[str, Any]:
    login = {"username": "iggy", "password": "iggy", **({} if version is None else {"version": version, "context": ""})}
    answer = http.post("/users/login", json=login)
    assert answer.status_code == 200
    document: dict[str, Any] = answer.json()
    return document


def ask(http: httpx.Client, token: str) -> httpx.Response:
    return http.get("/streams", headers={"authorization": f"Bearer {token}"})


@pytest.mark.parametrize(("version", "user_id"), [("0.6.202", 1), ("0.10.0", 1), ("0.11.0", 0)])
def test_a_login_gives_a_token_that_counts_until_the_logout(http: httpx.Client, version: str, user_id: int) -> None:
    told = log_in(http, version)
    assert told["user_id"] == user_id
    access = told["access_token"]
    assert 3500 < access["expiry"] - time.time() < 3700
    assert ask(http, access["token"]).status_code == 200
    again = http.post("/users/refresh-token", json={"token": access["token"]}).json()["access_token"]
    assert again["token"] != access["token"]
    assert http.delete("/users/logout", headers={"authorization": f"Bearer {access['token']}"}).status_code == 204
    refused = ask(http, access["token"])
    assert (refused.status_code, refused.json()["id"], refused.json()["code"]) == (401, 40, "unauthenticated")
    assert refused.json()["field"] is None
    assert ask(http, again["token"]).status_code == 200


def test_early_releases_have_a_token_that_only_gives_new_ones(http: httpx.Client) -> None:
    tokens = log_in(http, None)["tokens"]
    access, refresh = tokens["access_token"]["token"], tokens["refresh_token"]["token"]
    assert ask(http, access).status_code == 200
    assert ask(http, refresh).status_code == 401
    assert http.post("/users/refresh-token", json={"refresh_token": access}).status_code == 401
    again = http.post("/users/refresh-token", json={"refresh_token": refresh}).json()["tokens"]
    assert ask(http, again["access_token"]["token"]).status_code == 200


def forged(claims: dict[str, Any], key: str, algorithm: str) -> str:
    return jwt.encode(claims, key, algorithm)


def test_tokens_of_others_do_not_count(http: httpx.Client) -> None:
    good = log_in(http, "0.11.0")["access_token"]["token"]
    claims = jwt.decode(good, options={"verify_signature": False})
    head, body, signature = good.split(".")
    none = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').rstrip(b"=").decode()
    later = json.dumps({**claims, "exp": claims["exp"] + 9999}).encode()
    for token in (
        f"{none}.{body}.",
        forged(claims, "", "none"),
        forged(claims, "another key of thirty-two bytes and more", "HS256"),
        f"{head}.{base64.urlsafe_b64encode(later).rstrip(b'=').decode()}.{signature}",
        f"{head}.{body}",
        f"{head}.{body}.{signature[:-4]}AAAA",
        "x", "..", "é", "a" * 5000,
    ):  # fmt: skip
        answer = http.get("/streams", headers=[(b"authorization", b"Bearer " + token.encode("latin-1"))])
        assert (answer.status_code, answer.json()["id"]) == (401, 40), token[:40]
    # to log in one shows nothing that counts
    assert http.post(
        "/users/login", json={"username": "a", "password": "b"}, headers={"authorization": "Bearer x"}
    ).is_success
    assert http.get("/streams", headers={"authorization": "Bearer"}).is_success


_MEMBERS: Final = b",".join(b'"member-%d":0' % number for number in range(6_000))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{}", 422),
        (b'{"username":1,"password":"x"}', 422),
        (b'{"username":"x"}', 422),
        # parsing 100,000 members, which anyone may send, took a worker 58 ms
        (b'{"username":"x","password":"x",%s}' % _MEMBERS, 413),
        (b'{"username":"x","password":"x",%s}' % _MEMBERS[: 3_000 * 15].rpartition(b",")[0], 200),
    ],
    ids=["empty", "no members", "a number", "no password", "too large", "large"],
)
def test_a_login_that_is_none(http: httpx.Client, body: bytes, status: int) -> None:
    assert http.post("/users/login", content=body).status_code == status


def test_a_token_ends_at_its_time() -> None:
    tokens = HttpTokens()
    issued = tokens.issue("iggy", 1, "0.11", NOW_S)
    assert tokens.read(issued.token, issued.expiry - 1).name == "iggy"
    with pytest.raises(Refusal):
        tokens.read(issued.token, issued.expiry)
    refresh = tokens.issue("iggy", 1, "0.4", NOW_S, REFRESH)
    assert refresh.expiry == NOW_S + REFRESH_S
    with pytest.raises(Refusal):
        tokens.read(refresh.token, NOW_S)
    assert tokens.read(refresh.token, NOW_S, REFRESH, ACCESS).use == REFRESH


def test_after_too_many_logouts_nobody_is_logged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lading.endpoints.iggy.http.tokens.LOGOUTS_MAX", 3)
    tokens = HttpTokens()
    issued = [tokens.issue("iggy", 1, "0.11", NOW_S).token for _ in range(5)]
    for token in issued[:4]:
        tokens.log_out(tokens.read(token, NOW_S), NOW_S)
    for token in issued:
        with pytest.raises(Refusal):
            tokens.read(token, NOW_S)
    # those that have ended need not be remembered: the key stays
    fresh = HttpTokens()
    old = [fresh.issue("iggy", 1, "0.11", NOW_S).token for _ in range(3)]
    for token in old:
        fresh.log_out(fresh.read(token, NOW_S), NOW_S)
    kept, left = (fresh.issue("iggy", 1, "0.11", NOW_S + 4000).token for _ in range(2))
    fresh.log_out(fresh.read(left, NOW_S + 4000), NOW_S + 4000)
    assert fresh.read(kept, NOW_S + 4000).name == "iggy"


def test_the_current_generation_changes_topics_with_its_options(http: httpx.Client) -> None:
    http.headers["authorization"] = f"Bearer {log_in(http, '0.11.0')['access_token']['token']}"
    assert http.post("/streams", json={"name": "Options"}).json()["name"] == "Options"
    topic = {
        "name": "t",
        "partitions_count": 2,
        "compression_algorithm": "none",
        "message_expiry": 5,
        "max_topic_size": 0,
    }
    made = http.post("/streams/Options/topics", json={**topic, "options": {"segment_size": "128MiB"}})
    assert made.status_code == 200
    assert (made.json()["message_expiry"], [row["id"] for row in made.json()["partitions"]]) == (5, [0, 1])
    wrong = http.post("/streams/Options/topics", json={**topic, "name": "u", "options": {"no_such": "x"}})
    assert (wrong.status_code, wrong.json()["id"], wrong.json()["code"]) == (400, 4041, "unsupported_option_key")
    bad = http.post("/streams/Options/topics", json={**topic, "name": "u", "options": {"segment_size": "many"}})
    assert bad.json()["id"] == 4042
    changed = http.put("/streams/Options/topics/t", json={"name": "t", "message_expiry": 7, "options": {}})
    assert changed.status_code == 204
    assert http.get("/streams/Options/topics/t").json()["message_expiry"] == 7
    assert http.get("/streams/Options/topics/t").json()["max_topic_size"] in (0, None, "0", "unlimited", (1 << 64) - 1)
    assert http.put("/streams/Options/topics/t", json={"max_topic_size": 2_000_000_001}).status_code == 204
    assert http.get("/streams/Options/topics/t").json()["max_topic_size"] == 2_000_000_001
    assert http.delete("/streams/Options/topics/t/partitions?partitions_count=3").json()["id"] == 2019
    assert len(http.get("/streams/Options/topics/t").json()["partitions"]) == 2
    assert http.delete("/streams/Options/topics/t/purge").status_code == 204
    assert http.delete("/streams/Options/purge").status_code == 204
    assert http.get("/streams/Options/topics/t/consumer-offsets?consumer_id=c&partition_id=0").status_code == 404
    assert http.get("/streams/none").status_code == 404
    assert http.delete("/streams/Options").status_code == 204


@pytest.mark.parametrize("version", ["0.6.202", "0.10.0", "0.11.0", "0.12.0"])
def test_messages_sent_without_an_id_get_ids_of_their_own(http: httpx.Client, version: str) -> None:
    """Those of the current generation all had the id 0."""
    told = log_in(http, version)
    http.headers["authorization"] = f"Bearer {told['access_token']['token']}"
    name = f"ids-{version}"
    assert http.post("/streams", json={"name": name}).is_success
    topic = {"name": "t", "partitions_count": 1, "compression_algorithm": "none", "message_expiry": 0,
             "max_topic_size": 0}  # fmt: skip
    assert http.post(f"/streams/{name}/topics", json=topic).is_success
    messages: list[dict[str, Any]] = [{"payload": "eA=="} for _ in range(50)]
    messages[7]["id"] = 12345
    body = {"partitioning": {"kind": "balanced", "value": ""}, "messages": messages}
    assert http.post(f"/streams/{name}/topics/t/messages", json=body).is_success
    first = 1 if version == "0.6.202" else 0
    url = f"/streams/{name}/topics/t/messages?consumer_id=1&partition_id={first}&kind=offset&value=0&count=100"
    rows = http.get(url).json()["messages"]
    ids = [row.get("header", row)["id"] for row in rows]
    assert (len(set(ids)), ids[7], 0 in ids) == (50, 12345, False)


PLACE = "/streams/0/topics/0"
REQUESTS = (
    ("POST", "/users/login"), ("POST", "/users/refresh-token"), ("DELETE", "/users/logout"), ("GET", "/stats"),
    ("GET", "/users"), ("POST", "/users"), ("PUT", "/users/iggy/permissions"), ("POST", "/personal-access-tokens"),
    ("GET", "/clients"), ("GET", "/streams"), ("POST", "/streams"), ("PUT", "/streams/0"), ("DELETE", "/streams/0"),
    ("GET", "/streams/0/topics"), ("POST", "/streams/0/topics"), ("PUT", PLACE), ("POST", f"{PLACE}/partitions"),
    ("DELETE", f"{PLACE}/partitions"), ("GET", f"{PLACE}/consumer-offsets"), ("PUT", f"{PLACE}/consumer-offsets"),
    ("POST", f"{PLACE}/consumer-groups"), ("GET", f"{PLACE}/messages"), ("POST", f"{PLACE}/messages"),
    ("GET", f"{PLACE}/messages/deferred"), ("POST", f"{PLACE}/messages/deferred"),
    ("GET", f"{PLACE}/messages/flush/1/true"), ("GET", "/cluster/metadata"), ("PUT", f"{PLACE}/partitions/1/states"),
)  # fmt: skip


@pytest.mark.parametrize("version", [None, "0.6.202", "0.8.0", "0.11.0"])
def test_a_parameter_that_a_request_does_not_know_is_named(http: httpx.Client, version: str | None) -> None:
    if version is not None:
        http.headers["authorization"] = f"Bearer {log_in(http, version)['access_token']['token']}"
    for method, path in REQUESTS:
        refused = http.request(method, path, params={"misspelt": "1"}, json={} if method in ("POST", "PUT") else None)
        assert (refused.status_code, "misspelt" in refused.text) == (400, True), (method, path, refused.text)
