"""Rights at the catalog and at its objects: those of the caller, whose login is passed on to the broker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import httpx
import pytest
from obstore.exceptions import PermissionDeniedError
from obstore.store import S3Store
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import BadRequestError, ForbiddenError, NoSuchTableError, UnauthorizedError

from lading import testing
from lading.model.errors import Reason, Refusal
from lading.topic_tables.callers import CALLERS_MAX, LOGIN_S, OWN, TOKENS_MAX, CallerLogin, Callers
from lading.topic_tables.catalog import TableCatalog
from lading.topic_tables.keys import Grant, VendedKeys, load_secret
from lading.topic_tables.tables import LiveTables
from lading.transports.lading.transport import LadingTransport
from tests.client.memory import MemoryTransport

from .conftest import Clock, catalog, send

PASSWORD = "correct horse battery"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
CLOCK = Clock()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """A catalog over a broker with users: its address, and a token of each user."""
    with testing.broker() as broker:
        send(broker.url, "mine", 0, 5)
        send(broker.url, "secret", 0, 5)
        with closing(LadingTransport(broker.url)) as transport:
            transport.add_user("root", PASSWORD, administrator=True)
            transport.log_in("root", PASSWORD)
            transport.add_user("ann", PASSWORD)
            rule = {"user": "ann", "kind": "topic", "pattern": "literal", "name": "mine"}
            transport.change_rules([{**rule, "operation": operation} for operation in ("read", "describe")])
            tokens = {name: transport.add_token(name, "tables") for name in ("root", "ann")}
        with catalog(broker.url, tmp_path_factory.mktemp("guarded"), clock=CLOCK) as address:
            yield address, tokens


def test_a_caller_sees_what_its_rights_allow(guarded: tuple[str, dict[str, str]]) -> None:
    address, tokens = guarded
    ann = RestCatalog("c", uri=address, token=tokens["ann"])
    assert ann.list_tables("default") == [("default", "mine")]
    assert ann.load_table("default.mine").scan().to_arrow().num_rows == 5
    # the same words for what may not be seen and what is not there
    refused = [_refusal(ann, name) for name in ("default.secret", "default.nothing")]
    assert refused[0].replace("secret", "X") == refused[1].replace("nothing", "X")
    root = RestCatalog("c", uri=address, token=tokens["root"])
    assert root.list_tables("default") == [("default", "mine"), ("default", "secret")]


def _refusal(client: RestCatalog, name: str) -> str:
    with pytest.raises(NoSuchTableError) as refused:
        client.load_table(name)
    return str(refused.value)


def test_a_name_and_a_password_are_traded_for_a_token(guarded: tuple[str, dict[str, str]]) -> None:
    address, _ = guarded
    ann = RestCatalog("c", uri=address, credential=f"ann:{PASSWORD}")
    assert ann.load_table("default.mine").scan().to_arrow().num_rows == 5
    form = {"grant_type": "client_credentials", "client_id": "ann", "client_secret": "wrong"}
    answer = httpx.post(f"{address}/v1/oauth/tokens", data=form)
    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")


@pytest.mark.parametrize("token", [None, "forged", "x" * 5_000])
def test_strangers_see_nothing(guarded: tuple[str, dict[str, str]], token: str | None) -> None:
    address, _ = guarded
    with pytest.raises(UnauthorizedError, match="need a login"):
        RestCatalog("c", uri=address, **({} if token is None else {"token": token})).list_tables("default")


def test_objects_take_the_key_of_their_own_table_only(guarded: tuple[str, dict[str, str]]) -> None:
    address, tokens = guarded
    root = _load(address, "secret", tokens["root"])
    ann = _load(address, "mine", tokens["ann"])
    secret, mine = root["metadata-location"], ann["metadata-location"]
    assert _get(address, secret, root["config"]) == 200
    assert _get(address, mine, ann["config"]) == 200
    # another table's key, no key, a key that somebody changed, a signature of another key
    assert _get(address, secret, ann["config"]) == 403
    assert _get(address, secret, None) == 403
    for name, value in [
        ("s3.session-token", root["config"]["s3.session-token"]),
        ("s3.secret-access-key", "0" * 64),
        ("s3.access-key-id", "LADING00000000000000"),
        ("s3.session-token", "W10.00"),
        ("s3.session-token", "W10=.é"),
    ]:
        assert _get(address, secret, {**ann["config"], name: value}) == 403


def test_a_key_ends_after_an_hour_and_another_one_is_given(
    guarded: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, tokens = guarded
    loaded = _load(address, "mine", tokens["ann"])
    end_s = int(loaded["config"]["s3.session-token-expires-at-ms"]) / 1_000
    assert 3_500 < end_s - time.time() <= 3_600
    place = f"{address}/{loaded['config']['client.refresh-credentials-endpoint']}"
    login = {"authorization": f"Bearer {tokens['ann']}"}
    monkeypatch.setattr(CLOCK, "ahead_s", 3_601)
    assert _get(address, loaded["metadata-location"], loaded["config"]) == 403
    (renewed,) = httpx.get(place, headers=login).json()["storage-credentials"]
    assert str(loaded["metadata-location"]).startswith(renewed["prefix"])
    assert int(renewed["config"]["s3.session-token-expires-at-ms"]) / 1_000 > end_s + 3_500
    assert _get(address, loaded["metadata-location"], renewed["config"]) == 200
    # as for the table itself: nothing for a stranger, and the same words if it does not exist
    assert httpx.get(place).status_code == 401
    for name in ("secret", "nothing"):
        assert httpx.get(place.replace("mine", name), headers=login).status_code == 404


def test_a_key_outlives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    key = VendedKeys(load_secret(path)).vend(Grant("ann", "uuid"), 0.0)
    assert VendedKeys(load_secret(path)).vend(Grant("ann", "uuid"), 0.0) == key
    assert VendedKeys().vend(Grant("ann", "uuid"), 0.0) != key
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(b"cut short")
    assert VendedKeys(load_secret(path)).vend(Grant("ann", "uuid"), 0.0) != key


def test_a_token_is_renewed_by_exchange(guarded: tuple[str, dict[str, str]]) -> None:
    address, _ = guarded
    form = {"grant_type": "client_credentials", "client_id": "ann", "client_secret": PASSWORD}
    place = f"{address}/v1/oauth/tokens"
    # a password takes a while to check on a busy machine
    first = httpx.post(place, data=form, timeout=60).json()["access_token"]
    second = httpx.post(place, data={"grant_type": EXCHANGE, "subject_token": first}).json()
    assert second["issued_token_type"] == "urn:ietf:params:oauth:token-type:access_token"
    assert second["access_token"] != first and _list(address, second["access_token"]) == 200
    forged = httpx.post(place, data={"grant_type": EXCHANGE, "subject_token": "forged"})
    assert (forged.status_code, forged.json()["error"]) == (400, "invalid_grant")


def test_a_login_ends_however_often_its_token_is_renewed() -> None:
    now = [0.0]
    with closing(Callers("lading://127.0.0.1:1", {}, clock=lambda: now[0])) as callers:
        token = callers._make_token(CallerLogin("ann", LOGIN_S))
        other = callers._make_token(CallerLogin("ben", LOGIN_S))
        for _ in range(CALLERS_MAX + 10):
            now[0] += 3
            token = callers.renew(token) or ""
        # renewing displaces nobody else
        assert callers.find(other) == "ben" and callers.find(token) == "ann"
        assert len(callers._logins) <= TOKENS_MAX + 1
        now[0] = LOGIN_S
        assert callers.renew(token) is None and callers.find(token) not in ("ann", OWN)


def test_a_key_that_ended_is_as_good_as_none(
    broker: testing.BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without users anybody may read; a stream keeps the keys that it began with for hours."""
    send(broker.url, "open", 0, 2)
    with catalog(broker.url, tmp_path, clock=CLOCK) as address:
        loaded = httpx.get(f"{address}/v1/lading/namespaces/default/tables/open").json()
        monkeypatch.setattr(CLOCK, "ahead_s", 3_601)
        assert _get(address, loaded["metadata-location"], loaded["config"]) == 200


def test_a_session_token_with_other_characters_is_refused() -> None:
    request = "AWS4-HMAC-SHA256 Credential=LADING/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature="
    for token in ("W10=.\xe9", "\xe9.00", "W10", ""):
        headers = {"authorization": request + "0" * 64, "x-amz-security-token": token}
        assert VendedKeys().find_grant("GET", "/", "", headers, 0.0) is None


def test_wrong_logins_displace_nobody(guarded: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    address, _ = guarded
    monkeypatch.setattr("lading.topic_tables.callers.CALLERS_MAX", 2)
    form = {"grant_type": "client_credentials", "client_id": "ann", "client_secret": PASSWORD}
    # a password takes a while to check on a busy machine
    token = httpx.post(f"{address}/v1/oauth/tokens", data=form, timeout=60).json()["access_token"]
    assert _list(address, token) == 200
    assert {_list(address, f"wrong {number}") for number in range(3)} == {401}
    assert _list(address, token) == 200


def test_who_may_list_a_topic_may_not_read_what_others_had_rendered(tmp_path: Path) -> None:
    with testing.broker() as broker:
        send(broker.url, "listed", 0, 5)
        with closing(LadingTransport(broker.url)) as transport:
            transport.add_user("root", PASSWORD, administrator=True)
            transport.log_in("root", PASSWORD)
            transport.add_user("ann", PASSWORD)
            rule = {"user": "ann", "kind": "topic", "pattern": "literal", "name": "listed"}
            transport.change_rules([{**rule, "operation": "describe"}])
        with catalog(f"kafka://{broker.endpoints['kafka']}", tmp_path) as address:
            root = RestCatalog("c", uri=address, credential=f"root:{PASSWORD}").load_table("default.listed")
            assert root.scan().to_arrow().num_rows == 5
            ann = RestCatalog("c", uri=address, credential=f"ann:{PASSWORD}")
            assert ann.list_tables("default") == [("default", "listed")]
            with pytest.raises((BadRequestError, ForbiddenError), match="lacks a right"):
                ann.load_table("default.listed")


def _list(address: str, token: str) -> int:
    path = f"{address}/v1/lading/namespaces/default/tables"
    return httpx.get(path, headers={"authorization": f"Bearer {token}"}, timeout=60).status_code


def test_the_login_of_the_process_needs_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with testing.broker(settings={"endpoints.admin.token": "of the broker"}) as broker:
        monkeypatch.setenv("LADING_TOKEN", "of the broker")
        send(broker.url, "kept", 0, 2)
        with catalog(broker.url, tmp_path) as address:
            assert httpx.get(f"{address}/v1/config").status_code == 401
            assert httpx.get(f"{address}/topics/x/data/0-0-0-1.parquet").status_code == 403
            client = RestCatalog("c", uri=address, token="of the broker")
            assert client.load_table("default.kept").scan().count() == 2


def _load(address: str, name: str, token: str) -> dict[str, dict[str, str]]:
    path = f"{address}/v1/lading/namespaces/default/tables/{name}"
    loaded: dict[str, dict[str, str]] = httpx.get(path, headers={"authorization": f"Bearer {token}"}).json()
    return loaded


def _get(address: str, location: object, config: dict[str, str] | None) -> int:
    """Return the status of a request for an object, signed with a key by the object store client of Arrow's project."""
    bucket, _, key = str(location).removeprefix("s3://").partition("/")
    if config is None:
        return httpx.get(f"{address}/{bucket}/{key}").status_code
    store = S3Store(
        bucket, endpoint=address, region="us-east-1", virtual_hosted_style_request=False,
        access_key_id=config["s3.access-key-id"], secret_access_key=config["s3.secret-access-key"],
        session_token=config["s3.session-token"], client_options={"allow_http": True},
    )  # fmt: skip
    try:
        store.get(key).bytes()
    except PermissionDeniedError:
        return 403
    return 200


def test_wrong_passwords_take_no_thread_from_callers_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 wrong passwords, which wait in the source, took all threads: known callers waited, right ones got 401."""
    end = threading.Event()

    def log_in(self: Callers, name: str, password: str) -> MemoryTransport:
        if password != "right":
            assert end.wait(30)
            raise Refusal(Reason.UNAUTHENTICATED, "wrong; send the right one")
        return MemoryTransport(made=1)

    monkeypatch.setattr(Callers, "_log_in_transport", log_in)
    monkeypatch.setattr("lading.topic_tables.callers.open_transport", lambda url, **login: MemoryTransport(made=1))
    callers = Callers("lading://root:secret@127.0.0.1:1", {})
    app = TableCatalog(callers, cast("LiveTables", SimpleNamespace(store=None)), VendedKeys())

    async def talk() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://tables") as client:

            async def log_in(password: str) -> int:
                form = {"grant_type": "client_credentials", "client_id": "ann", "client_secret": password}
                return (await client.post("/v1/oauth/tokens", data=form)).status_code

            async def list_names(token: str) -> int:
                headers = {"authorization": f"Bearer {token}"}
                return (await client.get("/v1/lading/namespaces", headers=headers)).status_code

            assert await list_names("a token") == await log_in("right") == 200
            wrong = [asyncio.create_task(log_in(f"wrong {number}")) for number in range(60)]
            for _ in range(10):
                await asyncio.sleep(0)
            async with asyncio.timeout(20):
                assert await list_names("a token") == await log_in("right") == 200
            end.set()
            assert {await task for task in wrong} == {401}

    asyncio.run(talk())
    assert not callers._strangers, "their connections are closed"
    callers.close()
