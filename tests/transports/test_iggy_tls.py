"""``iggy://`` over TLS: every release, asked for and named, and what fails is explained by one sentence."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, get_args

import pytest

import lading
from lading import testing
from lading.model.errors import Unreachable
from lading.model.kinds import Kind
from lading.settings.endpoints import IggyRelease
from lading.testing import BrokerProcess
from lading.transports.iggy.transport import IggyTransport
from lading.transports.open import open_transport
from tests.endpoints.authority import Authority

CURRENT = "0.11"
"""No listener is set to it: its first bytes tell it."""
RELEASES = [None, *get_args(IggyRelease)]
_names = count(1)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ca")


@pytest.fixture(scope="module")
def secure(authority: Authority) -> Iterator[BrokerProcess]:
    """Plain, with its own certificate, for each release with one of the authority, and where that names another."""
    certificate = authority.sign("server")
    settings: dict[str, Any] = {}
    for name, release in {"own": None, "elsewhere": None, **{name_of(one): one for one in RELEASES}}.items():
        key = f"endpoints.iggy_tcp.listeners.{name}"
        settings[f"{key}.address"] = "127.0.0.2:0" if name == "elsewhere" else testing.FREE_PORT
        settings[f"{key}.tls.enabled"] = True
        if name != "own":
            settings[f"{key}.tls.certificate"] = certificate
        if release is not None:
            settings[f"{key}.release"] = release
    with testing.broker(settings=settings) as running:
        yield running


def name_of(release: str | None) -> str:
    """Return what the listener of a release is called."""
    return "unset" if release is None else "r" + release.replace(".", "-")


def url_of(broker: BrokerProcess, listener: str) -> str:
    return f"iggy://{broker.endpoints[f'iggy_tcp.{listener}']}"


def trust_own(broker: BrokerProcess) -> str:
    """Return the file that a client is told to trust where the broker made its certificate itself."""
    return str(broker.data_dir / "certificate.pem")


def exchange(url: str, **options: Any) -> None:
    """Create a topic, write to it, list it and read it, all over ``url``."""
    name = f"topic{next(_names)}"
    # records of TLS have 16 KiB: less, and more
    payloads = [b"hidden", bytes(range(256)) * 400]
    with lading.Producer(url, **options) as producer:
        producer.transport.create_topic(name)
        for payload in payloads:
            producer.send(name, payload, headers=[("carrier", "UA"), ("flight", 1545)])
    transport = open_transport(url, **options)
    assert name in [meta.name for meta in transport.topics()]
    transport.close()
    with lading.Consumer(url, name, group="g", timeout_s=0, **options) as consumer:
        found = list(consumer)
    assert [message.payload for message in found] == payloads
    typed = [("carrier", Kind.STRING), ("flight", Kind.INT64)]
    assert [[(header.key, header.kind) for header in message.headers] for message in found] == [typed] * 2


@pytest.mark.turns(4)
@pytest.mark.parametrize("is_named", [False, True], ids=["asked", "named"])
@pytest.mark.parametrize("release", RELEASES)
def test_every_release_is_written_and_read(
    secure: BrokerProcess, authority: Authority, release: str | None, is_named: bool
) -> None:
    url, options = url_of(secure, name_of(release)), {"ca_file": str(authority.file)}
    transport = open_transport(url, **options)
    assert isinstance(transport, IggyTransport)
    transport.topics()
    assert transport._socket.release.name == (release or "0.0.40")
    transport.close()
    exchange(url, **options, **({"release": release or CURRENT} if is_named else {}))


def test_the_brokers_own_certificate_is_trusted_where_it_is_named(secure: BrokerProcess) -> None:
    exchange(f"{url_of(secure, 'own')}?ca_file={trust_own(secure)}")


@pytest.mark.parametrize("release", [None, "0.0.40", "0.6", "0.10", CURRENT])
def test_what_fails_is_explained(
    secure: BrokerProcess, authority: Authority, tmp_path: Path, release: str | None
) -> None:
    own, known, trusted = url_of(secure, "own"), url_of(secure, "unset"), str(authority.file)
    other = str(Authority(tmp_path, "another").file)
    for url, options, told in (
        (own, {"tls": True}, r"TLS failed: .*self-signed certificate; give .* as ca_file \(in the URL, .*\)$"),
        (known, {"ca_file": other}, r"TLS failed: .* refused: .*local issuer certificate; give .*CA_FILE\)$"),
        (url_of(secure, "elsewhere"), {"ca_file": trusted}, r"TLS failed: .* refused: IP address mismatch.*127\.0\.0"),
        (f"iggy://{secure.endpoints['iggy_tcp']}", {"tls": True}, "TLS failed: .*the server has no TLS there; .*tls"),
        (known, {}, r"closed the connection.*; if it is one for TLS, set tls or ca_file$"),
    ):  # fmt: skip
        with pytest.raises(Unreachable, match=f"(?s)^[^\n]*{told}"):
            IggyTransport(url, timeout_s=5, release=release, **options).topics()


def test_a_server_that_says_why_it_hangs_up_is_understood(authority: Authority) -> None:
    """OpenSSL, unlike Lading, sends an alert before it closes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.sign("alerting"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=refuse_plain, args=(listener, context), daemon=True).start()
        url = f"iggy://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(Unreachable, match=r"if it is one for TLS, set tls or ca_file$"):
            IggyTransport(url, timeout_s=5).topics()


def refuse_plain(listener: socket.socket, context: ssl.SSLContext) -> None:
    connection, _ = listener.accept()
    with connection, pytest.raises(ssl.SSLError):
        context.wrap_socket(connection, server_side=True)
