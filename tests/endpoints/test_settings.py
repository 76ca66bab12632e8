"""Settings: sources in rising order, unknown keys with a suggestion, binds beyond loopback (design.md Process)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lading.broker.core.settings import BrokerSettings
from lading.endpoints.base.broker_settings import to_broker_settings
from lading.model.errors import SettingError
from lading.settings.loading import keys, load
from lading.settings.settings import Address, EndpointSettings, parse_address


def file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "lading.toml"
    path.write_text(text)
    return path


def test_defaults_are_loopback_and_fsync() -> None:
    settings = load().settings
    assert settings.durability == "fsync"
    assert str(settings.endpoints.iggy_tcp.address) == "127.0.0.1:8090"
    assert str(settings.endpoints.iggy_http.address) == "127.0.0.1:3000"
    assert str(settings.endpoints.kafka.address) == "127.0.0.1:9092"
    assert str(settings.endpoints.admin.address) == "127.0.0.1:7070"


def test_option_wins_over_environment_wins_over_file(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        'durability = "os"\nendpoints.iggy_tcp.address = "127.0.0.1:1"\nendpoints.admin.address = "127.0.0.1:2"\n',
    )
    env = {"LADING__ENDPOINTS__IGGY_TCP__ADDRESS": "127.0.0.1:3", "LADING__ENDPOINTS__ADMIN__ADDRESS": "127.0.0.1:4"}
    loaded = load(path, ["endpoints.admin.address=127.0.0.1:0"], {**env, "LADING_TEST_FULL": "1", "PATH": "/bin"})
    endpoints = loaded.settings.endpoints
    assert (endpoints.iggy_tcp.address.port, endpoints.admin.address.port) == (3, 0)
    assert loaded.origins == {
        "durability": str(path),
        "endpoints.iggy_tcp.address": "environment LADING__ENDPOINTS__IGGY_TCP__ADDRESS",
        "endpoints.admin.address": "--set",
    }


def test_every_key_is_shown_and_secrets_are_not() -> None:
    loaded = load(None, ["endpoints.admin.token=s3cret"])
    shown = loaded.settings.model_dump(mode="json")
    assert "s3cret" not in str(shown)
    assert set(shown["endpoints"]) >= {"iggy_tcp", "iggy_http", "kafka", "admin"}
    assert "endpoints.iggy_http.allow_unauthenticated" in keys()


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("durabilty=os", ["durabilty", "--set", "did you mean durability?"]),
        ("endpoints.iggy_tpc.address=x:1", ["did you mean endpoints.iggy_tcp?"]),
        ("endpoints.zzzzzzzzzzzz=1", ["endpoints.zzzzzzzzzzzz", "endpoints.admin"]),
        ("endpoints.iggy_tcp.adress=127.0.0.1:1", ["did you mean endpoints.iggy_tcp.address?"]),
        ("adress=127.0.0.1:1", ["unknown setting adress"]),
        ("durability=sometimes", ["durability", "--set", "'sometimes'", "'fsync', 'os' or 'none'"]),
        ("endpoints.admin.address=7070", ["endpoints.admin.address", "host:port"]),
        ("endpoints.admin.address=localhost:70000", ["0 to 65535"]),
        ("endpoints.admin.token=", ["endpoints.admin.token"]),
        ("workers=0", ["workers", "'0': too small; use 1 or more"]),
        ("workers=many", ["'many': not a whole number"]),
        ("endpoints=1", ["endpoints is a table"]),
        ("durability.level=1", ["durability takes a value"]),
        ("durability", ["key=value"]),
    ],
)
def test_one_sentence_names_key_source_and_remedy(option: str, words: list[str]) -> None:
    with pytest.raises(SettingError) as raised:
        load(None, [option])
    sentence = str(raised.value)
    assert "\n" not in sentence
    for word in words:
        assert word in sentence


def test_a_wrong_secret_is_not_repeated() -> None:
    with pytest.raises(SettingError) as raised:
        load(None, [], {"LADING__ENDPOINTS__ADMIN__TOKEN__X": "s3cret"})
    assert "s3cret" not in str(raised.value)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"missing\.toml: No such file"):
        load(tmp_path / "missing.toml")
    with pytest.raises(SettingError, match=r"lading\.toml: invalid TOML"):
        load(file(tmp_path, "durability = "))
    with pytest.raises(SettingError, match=r"unknown setting endpoints\.iggy_tcp\.prt \(.*lading\.toml\)"):
        load(file(tmp_path, "[endpoints.iggy_tcp]\nprt = 1\n"))


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("durability = fsync", 'text needs quotes: durability = "…"'),
        ("[endpoints.kafka]\naddress = 127.0.0.1:9999", 'text needs quotes: address = "…"'),
        ("data = ./x\n", 'text needs quotes: data = "…"'),
        ("retain = 7d", 'text needs quotes: retain = "…"'),
        ("[endpoints.kafka]\nenabled = False", "write enabled = false"),
        ("[endpoints.kafka", "; correct that line"),
        ('data = "x', "; correct that line"),
    ],
)
def test_a_text_without_quotes_is_named(tmp_path: Path, line: str, remedy: str) -> None:
    with pytest.raises(SettingError, match=re.escape(remedy) + "$") as refused:
        load(file(tmp_path, line))
    assert "fsync" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("iggy_tcp", "endpoints.iggy_tcp.allow_unauthenticated=true"),
        ("iggy_http", "endpoints.iggy_http.allow_unauthenticated=true"),
        ("kafka", "endpoints.kafka.allow_unauthenticated=true"),
        ("admin", "endpoints.admin.token=secret"),
    ],
)
def test_a_bind_beyond_loopback_needs_credentials_or_consent(name: str, remedy: str) -> None:
    wide = f"endpoints.{name}.address=0.0.0.0:0"
    with pytest.raises(SettingError, match=f"endpoints.{name}"):
        load(None, [wide])
    assert not getattr(load(None, [wide, remedy]).settings.endpoints, name).address.loopback
    # one that is switched off listens nowhere
    load(None, [wide, f"endpoints.{name}.enabled=false"])


@pytest.mark.parametrize(
    ("text", "address", "shown"),
    [
        ("localhost:1", Address("localhost", 1), "localhost:1"),
        ("[::1]:0", Address("::1", 0), "[::1]:0"),
        (":8090", Address("0.0.0.0", 8090), "0.0.0.0:8090"),
    ],
)
def test_addresses(text: str, address: Address, shown: str) -> None:
    assert parse_address(text) == address
    assert str(address) == shown
    assert address.loopback == (address.host != "0.0.0.0")


def test_sizes_take_units() -> None:
    assert load(None, ["log.segment_bytes=64MiB"]).settings.log.segment_bytes == 64 << 20


def test_every_key_is_documented_and_nothing_else() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
    documented = [line.split("`")[1] for line in page.read_text().splitlines() if line.startswith("| `")]
    assert documented == keys()


def test_the_bounds_of_kafka_groups_can_be_set() -> None:
    bounds = {"group_members_max": 7, "member_metadata_bytes_max": 2048, "groups_metadata_bytes_max": 4096,
              "group_assignment_bytes_max": 8192}  # fmt: skip
    loaded = load(None, [f"broker.{name}={value}" for name, value in bounds.items()])
    served = to_broker_settings(loaded.settings)
    assert {name: getattr(served, name) for name in bounds} == bounds
    unset, default = to_broker_settings(load(None, []).settings), BrokerSettings()
    assert {name: getattr(unset, name) for name in bounds} == {name: getattr(default, name) for name in bounds}


def test_a_token_may_lie_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("s3cret\n")
    loaded = load(None, [f"endpoints.admin.token_file={path}", "endpoints.admin.address=0.0.0.0:0"])
    token = loaded.settings.endpoints.admin.token
    assert token is not None
    assert token.get_secret_value() == "s3cret"
    assert "s3cret" not in str(loaded.settings.model_dump(mode="json"))


@pytest.mark.parametrize("content", [None, b"", b" \n", b"two words", b"\xff\xfe"])
def test_a_token_file_without_a_token_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingError, match=r"endpoints\.nsqd_http\.token_file.*token"):
        load(None, [f"endpoints.nsqd_http.token_file={path}"])


def test_a_token_and_a_token_file_are_one_too_many(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("s3cret")
    with pytest.raises(SettingError, match="set one of them"):
        load(None, [f"endpoints.admin.token_file={path}"], {"LADING__ENDPOINTS__ADMIN__TOKEN": "other"})


def test_a_listener_of_kafka_advertises_its_own_address() -> None:
    key = "endpoints.kafka"
    loaded = load(None, [f"{key}.advertised=a:1", f"{key}.partitions=3", f"{key}.listeners.s.address=127.0.0.1:2"], {})
    listener = loaded.settings.endpoints.kafka.listeners["s"]
    assert (listener.advertised, listener.partitions) == (None, 3)


@pytest.mark.parametrize("name", EndpointSettings.model_fields)
def test_client_certificates_open_an_address_beyond_loopback_if_they_are_required(name: str) -> None:
    key = f"endpoints.{name}"
    options = [f"{key}.address=0.0.0.0:0", f"{key}.tls.enabled=true", f"{key}.tls.client_ca=/ca.pem"]
    if name == "iggy_quic":
        # QUIC takes no client certificates
        with pytest.raises(SettingError, match=r"unknown setting endpoints\.iggy_quic\.tls\.enabled"):
            load(None, options, {})
        return
    assert load(None, options, {}).settings.endpoints.section(name).secured
    with pytest.raises(SettingError, match="can be reached from other machines"):
        load(None, [*options, f"{key}.tls.client_certificates=optional"], {})
    with pytest.raises(SettingError, match="client_certificates is optional without client_ca"):
        load(None, [f"{key}.tls.enabled=true", f"{key}.tls.client_certificates=optional"], {})


def test_listeners_take_what_they_do_not_set_from_their_endpoint(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        """
        [endpoints.iggy_tcp]
        connections_max = 7
        tls = { enabled = true, certificate = "one.pem" }
        [endpoints.iggy_tcp.listeners.old]
        address = "127.0.0.1:1"
        release = "0.0.30"
        tls.certificate = "other.pem"
        """,
    )
    loaded = load(path, ["endpoints.iggy_tcp.listeners.plain.address=127.0.0.1:2"],
                  {"LADING__ENDPOINTS__IGGY_TCP__LISTENERS__PLAIN__CONNECTIONS_MAX": "9"})  # fmt: skip
    endpoint = loaded.settings.endpoints.iggy_tcp
    old, plain = endpoint.listeners["old"], endpoint.listeners["plain"]
    assert [(each.address.port, each.connections_max, each.release) for each in (endpoint, old, plain)] == [
        (8090, 7, None),
        (1, 7, "0.0.30"),
        (2, 9, None),
    ]
    assert [str(each.tls.certificate) for each in (endpoint, old, plain)] == ["one.pem", "other.pem", "one.pem"]
    assert all(each.tls.enabled for each in (endpoint, old, plain))
    assert loaded.origins["endpoints.iggy_tcp.listeners.old.connections_max"] == str(path)
    assert loaded.origins["endpoints.iggy_tcp.listeners.plain.connections_max"].startswith("environment")
    names = [name for name, _ in loaded.settings.endpoints.sections()]
    assert names[:3] == ["iggy_tcp", "iggy_tcp.old", "iggy_tcp.plain"]
    assert loaded.settings.endpoints.section("iggy_tcp.old") is old


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["old.connections_max=7"], [r"endpoints\.iggy_tcp\.listeners\.old\.address", "required"]),
        (["old.address=0.0.0.0:1"], [r"listeners\.old\.address 0\.0\.0\.0:1", "allow_unauthenticated=true"]),
        (["old.adress=127.0.0.1:1"], [r"did you mean endpoints\.iggy_tcp\.listeners\.old\.address"]),
        (["old=127.0.0.1:1"], [r"listeners\.old is a table"]),
        (["Old.address=127.0.0.1:1"], ["listeners", "pattern"]),
        (["old.address=127.0.0.1:1", "old.connections_max=0"], [r"listeners\.old\.connections_max", "--set"]),
        (["old.address=127.0.0.1:1", "old.tls.certificate=x"], [r"tls\.enabled=true"]),
        (["old.address=127.0.0.1:1", "old.tls.key=x", "old.tls.enabled=true"], ["key is set without certificate"]),
    ],
)
def test_a_wrong_listener_is_named(options: list[str], words: list[str]) -> None:
    with pytest.raises(SettingError) as raised:
        load(None, [f"endpoints.iggy_tcp.listeners.{option}" for option in options])
    assert "\n" not in str(raised.value)
    for word in words:
        assert re.search(word, str(raised.value)), str(raised.value)


def test_client_certificates_stand_for_consent_beyond_loopback() -> None:
    wide = ["endpoints.iggy_tcp.address=0.0.0.0:0", "endpoints.iggy_tcp.tls.enabled=true"]
    with pytest.raises(SettingError, match="allow_unauthenticated"):
        load(None, wide)
    assert load(None, [*wide, "endpoints.iggy_tcp.tls.client_ca=ca.pem"]).settings.endpoints.iggy_tcp.secured
