"""Clients with logins over TLS, as they are: kcat by each mechanism, and the tools of Kafka for rules and passwords."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lading import testing
from lading.broker.core.rights import Right
from tests.endpoints.authority import Authority
from tests.endpoints.identity import PASSWORDS, broker_with_users, rule
from tests.endpoints.test_http_users import client as http_client
from tests.interop import kafka_broker, maven
from tests.interop.test_tls_clients import JARS, TIMEOUT_S, require, run

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ca")


@pytest.fixture(scope="module")
def broker(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerProcess]:
    settings: dict[str, Any] = {
        "endpoints.kafka.tls.enabled": True, "endpoints.kafka.tls.certificate": authority.sign("server"),
        "durability": "os",
    }  # fmt: skip
    rules = [rule("ann", right, "orders") for right in (Right.READ, Right.WRITE)]
    with broker_with_users(tmp_path_factory.mktemp("logins") / "data", rules, settings) as (running, _):
        root = http_client(running, basic="root")
        for name in ("orders", "secret"):
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
