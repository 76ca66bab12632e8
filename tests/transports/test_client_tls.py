"""TLS of ``kafka://``, ``nsq://``, ``iggy://`` and ``lading://``: by options, in URLs and by the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import lading
from lading import testing
from lading.cli.main import main
from lading.model.errors import LadingError, SettingError, Unreachable
from lading.transports.open import open_transport
from lading.transports.secrets import add_environment, forget_environment
from tests.endpoints.authority import Authority

SCHEMES = {"kafka": "kafka", "nsq": "nsqd_tcp", "iggy": "iggy_tcp", "lading": "admin", "nsq-lookup": "nsqlookupd_http"}
_names = count(1)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ca")


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[testing.BrokerProcess]:
    """Whoever connects must show a certificate. One address is not in that of the broker."""
    certificate = authority.sign("server")
    settings: dict[str, Any] = {"durability": "os"}
    for name in SCHEMES.values():
        key = f"endpoints.{name}.tls"
        settings |= {f"{key}.enabled": True, f"{key}.certificate": certificate, f"{key}.client_ca": authority.file}
    key = "endpoints.kafka.listeners.other"
    settings |= {f"{key}.address": "127.0.0.2:0"}
    with testing.broker(settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def files(authority: Authority) -> dict[str, str]:
    return {"ca_file": str(authority.file), "certificate_file": str(authority.sign("client"))}


def url(broker: testing.BrokerProcess, name: str) -> str:
    return f"{name.partition('-')[0]}://{broker.endpoints[SCHEMES[name]]}"


def exchange(url: str, payloads: list[bytes], **options: Any) -> list[bytes | None]:
    """Send, and read back."""
    topic = f"topic{next(_names)}"
    with lading.Producer(url, **options) as producer:
        producer.transport.create_topic(topic)
        for payload in payloads:
            producer.send(topic, payload, headers={"carrier": "UA"})
    queue: dict[str, Any] = {"group": "g"} if url.startswith("nsq") else {}
    with lading.Consumer(url, topic, start="earliest", timeout_s=2, **queue, **options) as consumer:
        found = []
        for message in consumer:
            found.append(message.payload)
            if len(found) == len(payloads):
                break
        return found


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", SCHEMES)
def test_messages_go_there_and_back(broker: testing.BrokerProcess, files: dict[str, str], name: str) -> None:
    # records of TLS have 16 KiB: less, and more
    payloads = [b"hidden", bytes(range(256)) * 400, b"last"] + [b"many"] * 20
    assert exchange(url(broker, name), payloads, **files) == payloads


@pytest.mark.parametrize("name", SCHEMES)
def test_what_fails_is_explained(broker: testing.BrokerProcess, files: dict[str, str], name: str) -> None:
    address = url(broker, name)
    for options, told in (
        (
            {"tls": True},
            r"certificate is refused: .*; give the certificate .* as ca_file \(in the URL, or LADING_CA_FILE\)",
        ),
        (
            {"tls": True, "ca_file": files["ca_file"]},
            r"certificate required; .*set certificate_file and key_file|broke|",
        ),
    ):
        with pytest.raises(LadingError, match=f"(?is){told}") as caught:
            exchange(address, [b"x"], timeout_s=5, retries=0, **options)
        assert isinstance(caught.value, Unreachable)
        # the server is reachable, and runs
        assert not re.search(r"reachable|serve --data|check that one", str(caught.value))


def test_a_certificate_for_another_host_is_refused(broker: testing.BrokerProcess, files: dict[str, str]) -> None:
    with pytest.raises(Unreachable, match=r"certificate is refused: .*127\.0\.0\.2"):
        open_transport(f"kafka://{broker.endpoints['kafka.other']}", **files, timeout_s=5, retries=0).topics()


def test_a_plain_client_of_kafka_is_told_of_tls(broker: testing.BrokerProcess) -> None:
    """The broker hangs up, so that it is listening there."""
    with pytest.raises(Unreachable, match=r"closed the connection; if it is one for TLS, set tls or ca_file\)$"):
        open_transport(url(broker, "kafka"), timeout_s=5, retries=0).topics()


def test_a_plain_client_of_the_admin_endpoint_is_told_of_tls(broker: testing.BrokerProcess) -> None:
    place = broker.endpoints["admin"]
    with pytest.raises(Unreachable, match=rf"takes TLS only; write lading://{place}\?tls=true, .* LADING_CA_FILE\)$"):
        open_transport(f"lading://{place}", timeout_s=5, retries=0).topics()


def test_files_of_a_client_certificate_are_named(files: dict[str, str]) -> None:
    for swapped, told in (
        (
            {"certificate_file": files["ca_file"], "key_file": files["certificate_file"]},
            "the key is that of another certificate",
        ),
        ({"key_file": files["ca_file"]}, "ca.* has no private key in PEM"),
        ({"key_file": "/no/such.key"}, "/no/such.key: No such file"),
    ):
        with pytest.raises(SettingError, match=told):
            open_transport("kafka://127.0.0.1:1", **{**files, **swapped})


@pytest.mark.turns(2, part=1)
def test_a_server_without_tls_is_told() -> None:
    with testing.broker() as plain:
        for name in ("kafka", "iggy", "lading"):
            with pytest.raises(Unreachable, match=r"(perhaps )?the server has no TLS there"):
                open_transport(f"{name}://{plain.endpoints[SCHEMES[name]]}", tls=True, timeout_s=2, retries=0).topics()
        with pytest.raises(LadingError, match="offers no TLS"):
            exchange(f"nsq://{plain.endpoints['nsqd_tcp']}", [b"x"], tls=True, timeout_s=2)


def test_the_command_line_takes_them_from_the_environment(
    broker: testing.BrokerProcess,
    files: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    exchange(url(broker, "kafka"), [b"x"], **files)
    for name, value in files.items():
        monkeypatch.setenv(f"LADING_{name.upper()}", value)
    for name in ("kafka", "iggy", "lading"):
        with pytest.raises(SystemExit) as ended:
            main(["topic", "list", "--from", url(broker, name)])
        assert not ended.value.code, capsys.readouterr().err
        assert "topic" in capsys.readouterr().out


def test_what_is_given_goes_before_the_environment(tmp_path: Path) -> None:
    environment = {"LADING_TLS": "true", "LADING_PASSWORD": "p", "LADING_TOKEN_FILE": "f", "LADING_CA_FILE": ""}
    known = ["tls", "ca_file", "password", "password_file", "token", "token_file"]
    assert add_environment({}, known, environment) == {"tls": "true", "password": "p", "token_file": "f"}
    given = {"tls": False, "password_file": "q", "token": "t"}
    assert add_environment(given, known, environment) == given
    assert add_environment({}, ["timeout_s"], environment) == {}


def test_the_environment_can_be_forgotten() -> None:
    environment = {"LADING_TLS": "true", "LADING_PASSWORD_FILE": "f", "LADING_SERVER": "lading://h", "HOME": "/"}
    forget_environment(environment)
    assert environment == {"LADING_SERVER": "lading://h", "HOME": "/"}


@pytest.mark.parametrize(
    ("address", "options", "told"),
    [
        (
            "kafka://h?username=u&password=secret",
            {},
            "password does not belong in a URL; .*password_file=.*LADING_PASSWORD",
        ),
        ("lading://h?token=secret", {}, "token does not belong in a URL"),
        ("nsq://h?auth_secret=secret", {}, "auth_secret does not belong in a URL"),
        ("kafka://h", {"key_file": "k"}, "key_file is given without certificate_file"),
        ("kafka://h", {"ca_file": "/missing.pem"}, r"ca_file '/missing\.pem': no such file"),
        ("nsq://h", {"certificate_file": __file__}, "certificate_file .*: .*; name PEM files"),
        ("kafka://h", {"tls": "maybe"}, "tls is 'maybe'; it takes true or false"),
        ("iggy://h", {"password": "a", "password_file": "b"}, "password and password_file are both given"),
        ("lading://h", {"token_file": "/missing"}, "token_file '/missing': No such file"),
    ],
)
def test_wrong_options_are_refused(address: str, options: dict[str, str], told: str) -> None:
    with pytest.raises(SettingError, match=told) as caught:
        open_transport(address, **options)
    assert "=secret" not in str(caught.value)


@pytest.mark.turns(2, part=0)
def test_a_secret_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(SettingError, match="empty; it holds the token and nothing else"):
        open_transport("lading://h", token_file=str(tmp_path / "empty"))
    (tmp_path / "token").write_text("t\n")
    with testing.broker(endpoints__admin__token="t") as guarded:
        open_transport(guarded.url, token_file=str(tmp_path / "token")).topics()
