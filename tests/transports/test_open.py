"""URLs: which transport they mean, and what is said about those that mean none."""

from __future__ import annotations

import socket

import pytest

from lading.model.errors import SettingError, Unreachable
from lading.transports.iggy.transport import IggyTransport
from lading.transports.open import address, open_transport


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ladng://127.0.0.1:7070", ("'ladng'", "did you mean lading://")),
        ("http://127.0.0.1:7070", ("'http'", "lading://127.0.0.1:7070")),
        ("https://10.0.0.7:7070/", ("'https'", "write lading://10.0.0.7:7070?tls=true for a")),
        ("lading://127.0.0.1:99999", ("not an address", "lading://127.0.0.1:7070")),
        ("lading://", ("invalid URL",)),
        ("lading://127.0.0.1:7070/flights", ("topic as an argument of its own",)),
        ("lading://127.0.0.1:7070?retry=1", ("no transport option 'retry'", "did you mean retries")),
        ("lading://127.0.0.1:7070?retries=no", ("retries is 'no'; it takes a number",)),
        ("iggy://127.0.0.1?release=0.9&release=0.8", ("'release' in the URL stands twice",)),
        ("iggy://127.0.0.1?tls", ("'tls' in the URL has no value",)),
        ("iggy://127.0.0.1?tls=perhaps", ("tls is 'perhaps'; it takes true or false",)),
        ("iggy://127.0.0.1?ca_file=/no/file.pem", ("'/no/file.pem': no such file", "PEM file")),
    ],
)
def test_a_wrong_url_is_explained(url: str, words: tuple[str, ...]) -> None:
    with pytest.raises(SettingError) as raised:
        open_transport(url)
    assert all(word in str(raised.value) for word in words), str(raised.value)


def test_addresses() -> None:
    assert address("lading://localhost", "lading") == ("localhost", 7070)
    assert address("iggy://[::1]:9", "iggy") == ("::1", 9)


def test_options_in_the_url_are_given_to_the_transport() -> None:
    transport = open_transport("iggy://127.0.0.1:1/my%20stream?username=me%26you&timeout_s=2", timeout_s=3)
    assert isinstance(transport, IggyTransport)
    assert transport.url == "iggy://127.0.0.1:1/my%20stream"
    assert (transport._user, transport._timeout_s) == (("me&you", "iggy"), 3)


def test_a_server_that_is_not_there_is_named_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    transport = open_transport(f"lading://127.0.0.1:{port}")
    with pytest.raises(Unreachable, match=rf"no broker is reachable at 127.0.0.1:{port}.*lading serve"):
        transport.topics()
    transport.close()
