"""``kafka://`` with logins: SCRAM and OAUTHBEARER against a broker with users, and a server that cheats."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lading.broker.core.access.rights import Right
from lading.dialects.kafka.scram_client import ScramLogin
from lading.model.errors import MalformedMessage, RemoteError, SettingError, Unreachable
from lading.model.protocol import MessageBound
from lading.testing import BrokerProcess
from lading.transports.kafka.transport import KafkaTransport
from lading.transports.open import open_transport
from tests.endpoints.identity import PASSWORDS, broker_with_users, rule
from tests.endpoints.test_http_users import client as http_client
from tests.endpoints.test_token_issuer import AUDIENCE, ISSUER, current, jwks


def example() -> ScramLogin:
    return ScramLogin("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")


FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"


def test_the_example_of_rfc_7677() -> None:
    """Section 3, as printed there."""
    login = example()
    assert login.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert login.answer(FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    login.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert ScramLogin("SCRAM-SHA-512", "a=b,c", "p").first().startswith(b"n,,n=a=3Db=2Cc,r=")


def test_a_server_that_cheats_is_not_believed() -> None:
    for wrong in (
        b"", b"\xff", b"r=x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", FIRST.replace(b"=4096", b"=1"),
        FIRST.replace(b"=4096", b"=99999999"), FIRST.replace(b"s=W", b"s=*"), b"r=rOprNGfwEbeRWgbNEkqO,s=AAAA,i=4096",
    ):  # fmt: skip
        with pytest.raises(MalformedMessage, match="SCRAM"):
            example().answer(wrong)
    login = example()
    login.answer(FIRST)
    for wrong in (b"", b"v=AAAA", b"e=other-error"):
        with pytest.raises(MalformedMessage, match="not who it claims"):
            login.check(wrong)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    path = tmp_path_factory.mktemp("logins")
    (path / "jwks.json").write_bytes(jwks("first"))
    settings = {"oauth.issuer": ISSUER, "oauth.audience": AUDIENCE, "oauth.jwks_file": str(path / "jwks.json")}
    rules = [rule(name, Right.READ, "orders") for name in ("ann", "dora")]
    with broker_with_users(path / "data", rules, settings) as (found, _):
        assert http_client(found, basic="root").post("/topics/default/orders", json={}).status_code == 201
        yield found


@pytest.mark.turns(3)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "scram-sha-512", None])
def test_by_name_and_password(running: BrokerProcess, mechanism: str | None) -> None:
    url = f"kafka://{running.endpoints['kafka']}"
    transport = open_transport(url, username="ann", password=PASSWORDS["ann"], sasl_mechanism=mechanism)
    assert [one.name for one in transport.topics()] == ["orders"]
    with pytest.raises(RemoteError, match=r"refused the user 'ann': SASL_AUTHENTICATION_FAILED") as error:
        open_transport(url, username="ann", password="wrong", sasl_mechanism=mechanism, retries=0).topics()
    assert "wrong" not in str(error.value)


def test_a_broker_that_asks_for_a_login_is_told(running: BrokerProcess) -> None:
    """It hangs up on who asks without one, which is no reason to look whether it runs."""
    with pytest.raises(Unreachable, match=r"closed the connection; if it asks for a login, set username and pass.*\)$"):
        open_transport(f"kafka://{running.endpoints['kafka']}", retries=0).topics()


def test_by_a_token_that_is_read_again(running: BrokerProcess, tmp_path: Path) -> None:
    url, file = f"kafka://{running.endpoints['kafka']}", tmp_path / "token"
    file.write_text(current() + "\n")
    transport = KafkaTransport(url, oauth_token_file=str(file))
    file.write_text(current())
    assert [one.name for one in transport.topics()] == ["orders"]
    by_command = open_transport(url, oauth_token_command=f"cat {file}")
    assert [one.name for one in by_command.topics()] == ["orders"]
    with pytest.raises(RemoteError, match="refused the token: SASL_AUTHENTICATION_FAILED"):
        KafkaTransport(url, oauth_token=current(exp=1), retries=0).topics()


def test_what_does_not_fit() -> None:
    for options, told in (
        ({"sasl_mechanism": "GSSAPI"}, "use PLAIN"),
        ({"sasl_mechanism": "SCRAM-SHA-256"}, "give username and password"),
        ({"sasl_mechanism": "OAUTHBEARER", "username": "a", "password": "b"}, "give oauth_token"),
        ({"username": "a", "oauth_token": "b"}, "both given"),
        ({"oauth_token_file": "/missing"}, "oauth_token_file"),
    ):
        with pytest.raises(SettingError, match=told):
            open_transport("kafka://host", **options)
    with pytest.raises(SettingError, match="oauth_token does not belong in a URL"):
        open_transport("kafka://host?oauth_token=secret")


def test_what_a_topic_takes_is_told_to_those_who_may_see_its_configuration(tmp_path: Path) -> None:
    """To others it is not known, and no fault."""
    rules = [rule("ann", Right.WRITE, "other")]
    with broker_with_users(tmp_path / "data", rules) as (broker, _):
        assert http_client(broker, basic="root").post("/topics/default/t", json={}).status_code == 201
        url = f"kafka://{broker.endpoints['kafka']}"
        found = []
        for name in ("ann", "root"):
            transport = KafkaTransport(url, username=name, password=PASSWORDS[name], sasl_mechanism="PLAIN")
            found.append(transport.message_bound("t"))
            transport.close()
        assert found == [None, MessageBound(1_048_588, "max.message.bytes")]
