"""Tokens of another issuer: what is taken, what is refused and why, and clients of Kafka that log in with one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import aiokafka
import confluent_kafka
import httpx
import jwt
import pytest
from aiokafka.abc import AbstractTokenProvider
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from lading.broker.core.access.rights import Right
from lading.endpoints.base import token_issuer
from lading.endpoints.base.token_issuer import KEYS_AGE_S, RETRY_S, TokenIssuer, UnknownKeysError, parse_keys
from lading.model.errors import LocalError, Reason, Refusal
from lading.runtime.document_fetch import fetch_document
from lading.settings.settings import OAuthSettings
from lading.testing import BrokerProcess
from tests.endpoints.identity import broker_with_users, rule
from tests.endpoints.kafka_frames import KafkaFrames, one_batch, produce
from tests.endpoints.nsq_client import NsqClient, sized
from tests.endpoints.test_http_users import client as http_client

ISSUER: Final = "https://login.example"
AUDIENCE: Final = "lading"
NOW_S: Final = 1_700_000_000
KEYS: Final = {kid: ec.generate_private_key(ec.SECP256R1()) for kid in ("first", "second", "strange")}


def jwks(*kids: str) -> bytes:
    rows = [{**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEYS[kid].public_key())), "kid": kid} for kid in kids]
    return json.dumps({"keys": [*rows, {"kty": "unknown"}]}).encode()


def signed(kid: str | None = "first", *, key: Any = None, algorithm: str = "ES256", **changed: Any) -> str:
    claims = {"iss": ISSUER, "aud": [AUDIENCE, "others"], "sub": "ann", "exp": NOW_S + 60, **changed}
    told = {name: value for name, value in claims.items() if value is not None}
    secret = KEYS[kid or "first"] if key is None else key
    return jwt.encode(told, secret, algorithm, {"kid": kid} if kid else None)


def make_issuer(path: Path, **settings: Any) -> TokenIssuer:
    return TokenIssuer(OAuthSettings(issuer=ISSUER, audience=AUDIENCE, jwks_file=path, **settings))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "jwks.json"
    path.write_bytes(jwks("first"))
    return path


def verify(issuer: TokenIssuer, token: str, at_s: float = NOW_S) -> tuple[str, int]:
    return asyncio.run(issuer.verify(token, int(at_s * 1e6)))


def refused(issuer: TokenIssuer, token: str, at_s: float = NOW_S) -> Reason:
    with pytest.raises(Refusal) as error:
        verify(issuer, token, at_s)
    return error.value.reason


def test_a_token_is_its_subjects_until_it_ends(file: Path) -> None:
    issuer = make_issuer(file)
    assert verify(issuer, signed()) == ("ann", (NOW_S + 90) * 1_000_000)
    # without the id of a key the only one is meant
    assert verify(issuer, signed(None))[0] == "ann"
    assert verify(make_issuer(file, user_claim="email"), signed(email="ann@example"))[0] == "ann@example"


PUBLIC: Final = KEYS["first"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
@pytest.mark.parametrize(
    "token",
    [
        signed(key=KEYS["strange"]),
        signed("strange"),
        signed(key="", algorithm="none"),
        # signed with what everybody knows, as if it were a secret (CVE-2015-9235)
        signed(key=b"x" * 64, algorithm="HS256"),
        signed(iss="https://other.example"),
        signed(aud="others"),
        signed(exp=None),
        signed(sub=None),
        signed(sub=7),
        signed(nbf=NOW_S + 3600),
        signed()[:-4],
        "a.b.c",
        "..",
        "x" * 100_000,
    ],
    ids=["other key", "unknown key", "none", "HS256", "issuer", "audience", "no end", "nobody", "number", "not yet",
         "cut", "no JSON", "empty", "long"],
)  # fmt: skip
def test_what_is_no_token_of_the_issuer_is_refused(file: Path, token: str) -> None:
    assert refused(make_issuer(file), token) is Reason.INVALID_TOKEN


def test_a_public_key_is_no_secret(file: Path) -> None:
    """PyJWT itself signs with no public key, so that the signature is made by hand."""
    import base64
    import hmac

    def encode(data: bytes) -> bytes:
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": NOW_S + 60}
    body = encode(json.dumps({"alg": "HS256", "kid": "first"}).encode()) + b"." + encode(json.dumps(claims).encode())
    token = body + b"." + encode(hmac.digest(PUBLIC, body, "sha256"))
    assert refused(make_issuer(file), token.decode()) is Reason.INVALID_TOKEN


def test_a_token_that_has_ended_is_told_so(file: Path) -> None:
    issuer = make_issuer(file, clock_skew_s=5)
    assert verify(issuer, signed(), NOW_S + 64.9)[0] == "ann"
    assert refused(issuer, signed(), NOW_S + 65) is Reason.TOKEN_EXPIRED


def test_keys_come_and_go(file: Path) -> None:
    issuer, later = make_issuer(file), partial(signed, exp=NOW_S + 3600)
    assert verify(issuer, later())[0] == "ann"
    file.write_bytes(jwks("second"))
    # one that is not known has them read again, but not for each token that a stranger makes up
    assert refused(issuer, later("second"), NOW_S + 1) is Reason.INVALID_TOKEN
    assert verify(issuer, later("second"), NOW_S + RETRY_S + 1)[0] == "ann"
    assert refused(issuer, later("first"), NOW_S + RETRY_S + 2) is Reason.INVALID_TOKEN
    # those that cannot be read leave what is known
    file.write_bytes(b"{}")
    assert verify(issuer, later("second"), NOW_S + 2 * KEYS_AGE_S)[0] == "ann"
    # a key that is removed counts no longer, once they are read again
    file.write_bytes(jwks("first"))
    assert refused(issuer, later("second"), NOW_S + 4 * KEYS_AGE_S) is Reason.INVALID_TOKEN


def test_keys_come_over_http_and_follow_no_redirect() -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/keys"
            self.send_response(200 if found else 302)
            self.send_header("location", "/keys")
            self.end_headers()
            self.wfile.write(jwks("first") if found else b"")

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        url = f"http://127.0.0.1:{server.server_port}"
        issuers = [
            TokenIssuer(OAuthSettings(issuer=ISSUER, audience=AUDIENCE, jwks_url=url + path))
            for path in ("/keys", "/elsewhere")
        ]
        assert verify(issuers[0], signed())[0] == "ann"
        assert refused(issuers[1], signed()) is Reason.INVALID_TOKEN
        server.shutdown()


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer with a header line that grows by a byte at a time, faster than any time-out between two bytes."""
    with contextlib.suppress(ConnectionError):
        writer.write(b"HTTP/1.1 200 OK\r\nx: ")
        while not writer.is_closing():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)
    writer.close()


def test_a_key_server_that_drips_delays_no_login_whose_key_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_issuer, "READ_TIMEOUT_S", 0.2)

    async def work() -> None:
        server = await asyncio.start_server(drip, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"
        issuer = TokenIssuer(OAuthSettings(issuer=ISSUER, audience=AUDIENCE, jwks_url=url))
        now_us = NOW_S * 1_000_000
        # a first login, and all that come meanwhile, end with the one read
        refused = await asyncio.gather(*(issuer.verify(signed(), now_us) for _ in range(3)), return_exceptions=True)
        assert [type(error) for error in refused] == [UnknownKeysError] * 3
        assert "could not be read" in str(refused[0])
        issuer._keys = parse_keys(jwks("first"))
        # the next read has begun for a key that is not known; a login with one that is has no turn of the loop to wait
        later_us = now_us + int((RETRY_S + 1) * 1e6)
        stranger = asyncio.ensure_future(issuer.verify(signed("second"), later_us))
        await asyncio.sleep(0)
        with pytest.raises(StopIteration) as done:
            issuer.verify(signed(), later_us).send(None)
        assert done.value.value.name == "ann"
        assert not stranger.done()
        with pytest.raises(Refusal, match="does not publish"):
            await stranger
        issuer.close()
        server.close()

    asyncio.run(work())


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n" + bytes(2 << 20), "longer than"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 400_000, "a head of more"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 400_000, "a head of more"),
        (b"HTTP/1.1 302 Found\r\nlocation: /\r\n\r\n", "HTTP status 302"),
        (b"220 smtp\r\n", "no HTTP response"),
        (b"", "no HTTP response"),
    ],
    ids=["long body", "tiny chunks", "long head", "redirect", "other protocol", "nothing"],
)
def test_a_document_is_bounded(response: bytes, problem: str) -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(response)
            await writer.drain()
        writer.close()

    async def work() -> None:
        server = await asyncio.start_server(respond, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"
        with pytest.raises((OSError, ValueError), match=problem):
            await fetch_document(url, 1 << 20)
        server.close()

    asyncio.run(work())


def test_settings_that_cannot_be_used(tmp_path: Path) -> None:
    for wrong in (
        {"audience": "x"}, {"issuer": "x"}, {"issuer": "x", "audience": "x"},
        {"issuer": "x", "audience": "x", "jwks_url": "http://keys.example"},
        {"issuer": "x", "audience": "x", "jwks_url": "https://a", "jwks_file": "b"},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"issuer|audience|https"):
            OAuthSettings.model_validate(wrong)
    for data in (None, b"{}", b"x", b'{"keys": []}'):
        path = tmp_path / "keys"
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(LocalError, match="jwks_file"):
            make_issuer(path)


# -- over the wire


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    path = tmp_path_factory.mktemp("oauth")
    (path / "jwks.json").write_bytes(jwks("first"))
    settings = {
        "oauth.issuer": ISSUER, "oauth.audience": AUDIENCE, "oauth.jwks_file": str(path / "jwks.json"),
        "oauth.clock_skew_s": 0,
    }  # fmt: skip
    # dora is no user of the broker: rules name whom the issuer names
    rules = [rule("dora", Right.WRITE, "orders"), rule("dora", Right.READ, "orders")]
    with broker_with_users(path / "data", rules, settings) as (found, _):
        assert http_client(found, basic="root").post("/topics/default/orders", json={}).status_code == 201
        yield found


def current(**changed: Any) -> str:
    return signed(**{"sub": "dora", "exp": int(time.time()) + 3600, **changed})


def bear(kafka: KafkaFrames, token: str, head: str = "n,,") -> Any:
    assert kafka.ask("SaslHandshake", 1, mechanism="OAUTHBEARER").error_code == 0
    return kafka.ask("SaslAuthenticate", 2, auth_bytes=f"{head}\x01auth=Bearer {token}\x01\x01".encode())


def test_kafka_refuses_in_two_steps(running: BrokerProcess) -> None:
    """RFC 7628 section 3.2.3: the status, an answer of the client, then the failure of the login."""
    for token in (current(key=KEYS["strange"]), current(exp=1), signed(key="", algorithm="none"), "x"):
        kafka = KafkaFrames(running.endpoints["kafka"])
        answer = bear(kafka, token)
        assert (answer.error_code, json.loads(answer.auth_bytes)) == (0, {"status": "invalid_token"})
        answer = kafka.ask("SaslAuthenticate", 2, auth_bytes=b"\x01")
        assert answer.error_code == 58
        with pytest.raises(ConnectionError):
            kafka.ask("Metadata", 4, topics=None)
    for head in ("p=tls-unique,,", "n,a=root,", "n"):
        kafka = KafkaFrames(running.endpoints["kafka"])
        assert bear(kafka, current(), head).error_code == 58


def test_a_login_is_made_again_before_it_ends(running: BrokerProcess) -> None:
    kafka = KafkaFrames(running.endpoints["kafka"])
    answer = bear(kafka, current(exp=int(time.time()) + 2), "n,a=dora,")
    assert answer.error_code == 0 and 0 < answer.session_lifetime_ms <= 2_000
    # KIP-368: on the same connection, by the same user
    assert bear(kafka, current(exp=int(time.time()) + 3)).error_code == 0
    assert kafka.ask("Metadata", 9, topics=[{"name": "orders"}]).topics[0].error_code == 0
    other = KafkaFrames(running.endpoints["kafka"])
    assert bear(other, current()).error_code == 0
    assert bear(other, current(sub="ann")).error_code == 58
    # and what is not made again ends with its token
    assert kafka.closed()


def test_what_takes_a_token_takes_one_of_the_issuer(running: BrokerProcess) -> None:
    token = current()
    assert http_client(running, bearer=token).get("/topics").json()[0]["name"] == "orders"
    assert http_client(running, bearer=current(exp=1)).get("/topics").status_code == 401
    nsqd = NsqClient(running.endpoints["nsqd_tcp"])
    nsqd.send(sized(b"AUTH\n", token.encode()))
    assert nsqd.frame()[0] == 0
    nsqd.close()
    kafka = KafkaFrames(running.endpoints["kafka"])
    assert bear(kafka, token).error_code == 0
    (answer,) = kafka.ask("Produce", 7, **produce("orders", one_batch(b"x"))).responses
    assert answer.partition_responses[0].error_code == 0


def test_iggy_over_http_takes_it_with_each_request(running: BrokerProcess) -> None:
    with httpx.Client(base_url=f"http://{running.endpoints['iggy_http']}", timeout=10) as http:

        def ask(token: str, path: str = "/streams/default/topics/orders/messages?consumer_id=1") -> httpx.Response:
            return http.get(path, headers={"authorization": f"Bearer {token}"})

        assert ask(current()).status_code == 200
        # a topic that dora may not see, and an issuer that vouches for another one
        assert ask(current(), "/streams/default/topics/other/messages?consumer_id=1").status_code in (403, 404)
        assert ask(current(sub="ann")).status_code == 403
        made = time.time()
        for wrong in (current(key=KEYS["strange"]), current(exp=1), signed(key="", algorithm="none", exp=made + 60)):
            refused = ask(wrong)
            assert refused.status_code == 401 and "token" in refused.json()["reason"], refused.text
        # it gives none that would count longer than itself
        told = http.post("/personal-access-tokens/login", json={"token": current(sub="ann")})
        assert told.status_code == 401 and "with each request" in told.json()["reason"]


def test_confluent_kafka(running: BrokerProcess) -> None:
    def configured(token: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": running.endpoints["kafka"], "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: (token, time.time() + 3600), "log_level": 0,
        }  # fmt: skip

    producer = confluent_kafka.Producer(configured(current()))
    failed: list[Any] = []
    producer.produce("orders", b"librdkafka", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(20) == 0 and failed == [None]
    errors: list[str] = []
    refused = confluent_kafka.Producer(
        {**configured(current(key=KEYS["strange"])), "error_cb": lambda error: errors.append(error.name())}
    )
    for _ in range(100):
        refused.poll(0.1)
        if errors:
            break
    assert "_AUTHENTICATION" in errors


def test_aiokafka(running: BrokerProcess) -> None:
    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return current()

    async def work() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=running.endpoints["kafka"], security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=Provider(),
        )  # fmt: skip
        async with asyncio.timeout(30), producer:
            await producer.send_and_wait("orders", b"aiokafka")

    asyncio.run(work())
