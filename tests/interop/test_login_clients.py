"""Clients with logins over TLS, as they are: kcat, franz-go, Java and go-nsq by each way to log in, Kafka's tools."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lading import testing
from lading.broker.core.access.rights import Right
from tests.endpoints.authority import Authority
from tests.endpoints.identity import PASSWORDS, broker_with_users, rule
from tests.endpoints.test_http_users import client as http_client
from tests.endpoints.test_token_issuer import AUDIENCE, ISSUER, KEYS, current, jwks
from tests.interop import go_programs, kafka_broker, maven, wheels
from tests.interop.iggy_current import CallError, CurrentClient
from tests.interop.test_tls_clients import JARS, TIMEOUT_S, require, run

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ca")


@pytest.fixture(scope="module")
def broker(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerProcess]:
    path = tmp_path_factory.mktemp("logins")
    (path / "jwks.json").write_bytes(jwks("first"))
    settings: dict[str, Any] = {
        "oauth.issuer": ISSUER, "oauth.audience": AUDIENCE, "oauth.jwks_file": str(path / "jwks.json"),
        "durability": "os",
    }  # fmt: skip
    certificate = authority.sign("server")
    for name in ("kafka", "nsqd_tcp", "iggy_tcp"):
        settings |= {f"endpoints.{name}.tls.enabled": True, f"endpoints.{name}.tls.certificate": certificate}
    # dora is no user of the broker, but the issuer's
    rules = [rule(name, right, "orders") for name in ("ann", "dora") for right in (Right.READ, Right.WRITE)]
    rules += [rule(name, right, "nsq") for name in ("ann", "dora") for right in (Right.READ, Right.WRITE)]
    rules += [rule("cat", right, "iggy-*") for right in (Right.READ, Right.WRITE)]
    with broker_with_users(path / "data", rules, settings, others=("cat", "eve")) as (running, _):
        root = http_client(running, basic="root")
        for name in ("orders", "nsq", "secret", "iggy-tcp", "iggy-quic"):
            assert root.post(f"/topics/default/{name}", json={}).status_code == 201
        yield running


def kcat(broker: testing.BrokerProcess, authority: Authority, mechanism: str, password: str) -> list[str]:
    options = {
        "security.protocol": "sasl_ssl", "ssl.ca.location": authority.file, "sasl.mechanisms": mechanism,
        "sasl.username": "ann", "sasl.password": password,
    }  # fmt: skip
    address = broker.endpoints["kafka"].replace("127.0.0.1", "localhost")
    return [require("kcat"), "-b", address, *(f"-X{name}={each}" for name, each in options.items())]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_kcat(broker: testing.BrokerProcess, authority: Authority, mechanism: str) -> None:
    command = kcat(broker, authority, mechanism, PASSWORDS["ann"])
    run(*command, "-P", "-t", "orders", "-p", "0", given=f"{mechanism}\n")
    assert mechanism in run(*command, "-C", "-t", "orders", "-p", "0", "-o", "beginning", "-e", "-q").split()
    assert "secret" not in run(*command, "-L")
    wrong = [*kcat(broker, authority, mechanism, "wrong"), "-L", "-m", "5"]
    done = subprocess.run(wrong, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode and "wrong user name or password" in done.stderr


def test_kcat_with_a_token_that_nobody_signed(broker: testing.BrokerProcess, authority: Authority) -> None:
    """librdkafka makes it itself (``alg`` is ``none``, RFC 7515 appendix A.5)."""
    address = broker.endpoints["kafka"].replace("127.0.0.1", "localhost")
    options = {
        "security.protocol": "sasl_ssl", "ssl.ca.location": authority.file, "sasl.mechanisms": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=root",
    }  # fmt: skip
    command = [require("kcat"), "-b", address, *(f"-X{name}={each}" for name, each in options.items()), "-L", "-m", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode and "this token is not signed with a key of its issuer" in done.stderr


def issued_token(**changed: Any) -> str:
    """A token as Java's client asks for: it says when it was made."""
    return current(iat=int(time.time()) - 1, **changed)


def kafka_logins() -> tuple[list[str], list[str]]:
    """Right ones by each mechanism, and wrong ones, as lines for the programs."""
    by_password = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    right = [f"{mechanism} ann {PASSWORDS['ann']}" for mechanism in by_password]
    wrong = [f"{mechanism} ann wrong" for mechanism in by_password]
    bearer = "OAUTHBEARER dora"
    return [*right, f"{bearer} {issued_token()}"], [*wrong, f"{bearer} {issued_token(key=KEYS['strange'])}"]


def test_franz_go(broker: testing.BrokerProcess, authority: Authority) -> None:
    try:
        program = go_programs.client("login", Path(__file__).with_name("kafka_go"))
    except go_programs.Unavailable as reason:
        pytest.skip(str(reason))
    address = broker.endpoints["kafka"].replace("127.0.0.1", "localhost")
    right, wrong = kafka_logins()
    given = "".join(f"{login}\n" for login in (*right, *wrong))
    told = run(str(program), address, str(authority.file), "orders", given=given).splitlines()
    assert told[:4] == [f"read: franz {number}" for number in range(4)]
    # to the first of the two steps in which a token is refused (RFC 7628 section 3.2.3) it says nothing more
    assert told[4:] == 3 * ["refused: SASL_AUTHENTICATION_FAILED"] + ["failed: unexpected data in oauth response"]


def test_the_java_client(broker: testing.BrokerProcess, authority: Authority, tmp_path: Path, full: bool) -> None:
    if not full:
        pytest.skip("compiles a Java program and runs it: with LADING_TEST_FULL=1")
    try:
        jars = f"{kafka_broker.jars()}/*"
    except kafka_broker.Unavailable as reason:
        pytest.skip(str(reason))
    source = Path(__file__).with_name("kafka_java") / "Login.java"
    run(require("javac"), "-J-XX:TieredStopAtLevel=1", "-proc:none", "-cp", jars, "-d", str(tmp_path), str(source))
    address = broker.endpoints["kafka"].replace("127.0.0.1", "localhost")
    right, wrong = kafka_logins()
    command = [require("java"), "-XX:TieredStopAtLevel=1", "-cp", f"{tmp_path}:{jars}", "Login", address]
    given = "".join(f"{login}\n" for login in (*right, *wrong))
    printed = run(*command, str(authority.file), "orders", str(tmp_path), given=given).splitlines()
    # its log is printed too
    told = [line for line in printed if line.startswith(("read: ", "failed: ", "refused: "))]
    assert told[:4] == [f"read: java {number}" for number in range(4)]
    assert len(told) == 8 and all("SaslAuthenticationException" in line for line in told[4:])


def test_go_nsq_logs_in(broker: testing.BrokerProcess, authority: Authority) -> None:
    try:
        client = go_programs.Conversation(go_programs.client("upstream"))
    except go_programs.Unavailable as reason:
        pytest.skip(str(reason))
    to = {"address": broker.endpoints["nsqd_tcp"], "topic": "nsq", "ca_file": str(authority.file)}
    secrets = [
        f"ann:{PASSWORDS['ann']}",
        http_client(broker, basic="ann").post("/users/ann/tokens/go", json={}).json()["token"],
        current(),
    ]
    with contextlib.closing(client):
        for secret in secrets:
            told = client.ask(op="publish", bodies=[secret[:3].encode()], secret=secret, **to)
            assert told["error"] == ""
        read = client.ask(op="consume", channel="c", count=3, in_flight=3, timeout_ms=20_000, secret=secrets[0], **to)
        assert [each["body"] for each in read["messages"]] == [secret[:3].encode() for secret in secrets]
        for secret in ("ann:wrong", current(key=KEYS["strange"]), "lading_0"):
            assert "E_AUTH_FAILED" in client.ask(op="publish", bodies=[b"x"], secret=secret, **to)["error"]
        assert client.ask(op="publish", bodies=[b"x"], **to)["error"] != ""


@pytest.mark.turns(2)
@pytest.mark.parametrize("transport", ["tcp", "quic"])
def test_apache_iggy_logs_in(broker: testing.BrokerProcess, authority: Authority, transport: str) -> None:
    topic, port = f"iggy-{transport}", broker.endpoints[f"iggy_{transport}"].rpartition(":")[2]
    options = f"?tls=true&tls_domain=localhost&tls_ca_file={authority.file}" if transport == "tcp" else ""

    def connect(login: str) -> CurrentClient:
        return CurrentClient(f"iggy+{transport}://{login}@127.0.0.1:{port}{options}")

    try:
        client = connect("cat:password")
    except wheels.Unavailable as reason:
        pytest.skip(str(reason))
    with contextlib.closing(client):
        client.send("default", topic, ("partition_id", 0), [(b"hidden", [], None)])
        assert [message["payload"] for message in client.poll("default", topic)] == [b"hidden"]
        with pytest.raises(CallError, match="Unauthorized"):
            client.poll("default", "secret")
    with contextlib.closing(connect("eve:password")) as nobody, pytest.raises(CallError):
        nobody.poll("default", topic)
    token = http_client(broker, basic="root").post(f"/users/cat/tokens/{transport}", json={}).json()["token"]
    with contextlib.closing(connect(token)) as by_token:
        assert [message["payload"] for message in by_token.poll("default", topic)] == [b"hidden"]
        with pytest.raises(CallError, match="Unauthorized"):
            by_token.poll("default", "secret")
    for wrong in ("cat:wrong", f"{token}x", "iggypat-1234567890abcdef"):
        with pytest.raises(AssertionError, match="the client has ended"):
            connect(wrong)


class KafkaTools:
    """Tools of Kafka, logged in as somebody."""

    def __init__(self, broker: testing.BrokerProcess, authority: Authority, directory: Path) -> None:
        try:
            jars = maven.fetched(f"kafka-tools-{kafka_broker.VERSION}", JARS)
        except maven.Unavailable as reason:
            pytest.skip(str(reason))
        self._command = [require("java"), "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
        self._to = ["--bootstrap-server", broker.endpoints["kafka"].replace("127.0.0.1", "localhost")]
        self._trusted, self._directory = authority.file, directory

    def run(self, user: str, mechanism: str, tool: str, *arguments: str, password: str | None = None) -> str:
        login = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        word = PASSWORDS[user] if password is None else password
        config = self._directory / f"{user}.properties"
        config.write_text(
            f"security.protocol=SASL_SSL\nssl.truststore.type=PEM\nssl.truststore.location={self._trusted}\n"
            f"sasl.mechanism={mechanism}\nsasl.jaas.config=org.apache.kafka.common.security.{login} required "
            f'username="{user}" password="{word}";\n'
        )
        command = [*self._command, tool, *self._to, "--command-config", str(config), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        return done.stdout + done.stderr


def test_rules_and_passwords_by_kafkas_own_tools(
    broker: testing.BrokerProcess, authority: Authority, tmp_path: Path, full: bool
) -> None:
    if not full:
        pytest.skip("ten Java processes: with LADING_TEST_FULL=1")
    tools = KafkaTools(broker, authority, tmp_path)
    acls, configs = "org.apache.kafka.tools.AclCommand", "kafka.admin.ConfigCommand"
    # the administrator's password has letters that a file of properties would need escaped: bob is made one
    root = http_client(broker, basic="root")
    assert root.put("/users/bob", json={"administrator": True}).status_code == 200
    added = "SCRAM-SHA-256=[iterations=4096,password=eves]"
    told = tools.run("bob", "SCRAM-SHA-512", configs, "--alter", "--entity-type", "users", "--entity-name", "eve",
                     "--add-config", added)  # fmt: skip
    assert "Completed updating config for user eve" in told
    told = tools.run("bob", "PLAIN", configs, "--describe", "--entity-type", "users", "--entity-name", "eve")
    assert "SCRAM-SHA-256=iterations=4096" in told
    topics = "org.apache.kafka.tools.TopicCommand"
    assert "secret" not in tools.run("eve", "SCRAM-SHA-256", topics, "--list", password="eves")
    told = tools.run("bob", "SCRAM-SHA-256", acls, "--add", "--allow-principal", "User:eve", "--consumer",
                     "--topic", "secret", "--group", "g")  # fmt: skip
    assert "Adding ACLs" in told
    assert {row["operation"] for row in root.get("/rules").json() if row["user"] == "eve"} == {"read", "describe"}
    assert "secret" in tools.run("eve", "SCRAM-SHA-256", topics, "--list", password="eves")
    listed = tools.run("bob", "SCRAM-SHA-256", acls, "--list", "--principal", "User:eve")
    assert "(principal=User:eve, host=*, operation=READ, permissionType=ALLOW)" in listed
    refused = tools.run("eve", "SCRAM-SHA-256", acls, "--list", password="eves")
    assert "ClusterAuthorizationException" in refused
    of_eve = ("--entity-type", "users", "--entity-name", "eve")
    told = tools.run("bob", "SCRAM-SHA-256", configs, "--alter", *of_eve, "--add-config",
                     "producer_byte_rate=1000000,request_percentage=50")  # fmt: skip
    assert "Completed updating config for user eve" in told
    quota = {"user": "eve", "producer_byte_rate": 1e6, "request_percentage": 50.0}
    assert root.get("/quotas").json() == [quota]
    told = tools.run("bob", "SCRAM-SHA-256", configs, "--describe", *of_eve)
    assert "producer_byte_rate=1000000.0" in told and "request_percentage=50.0" in told
    told = tools.run("bob", "SCRAM-SHA-256", acls, "--add", "--allow-principal", "User:eve", "--operation", "Delete",
                     "--operation", "AlterConfigs", "--operation", "DescribeConfigs", "--topic", "secret")  # fmt: skip
    assert "Adding ACLs" in told
    rows = [row for row in root.get("/rules").json() if row["user"] == "eve" and row["kind"] == "topic"]
    assert {row["operation"] for row in rows} == {"read", "describe", "delete", "alter_configs", "describe_configs"}
