"""``iggy://`` over TLS: the broker's own certificate is trusted where it is named, and what fails is explained."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

import lading
from lading import testing
from lading.model.errors import Unreachable
from lading.testing import BrokerProcess
from lading.transports.iggy.transport import IggyTransport

OWN = {
    "endpoints.iggy_tcp.listeners.secure.address": testing.FREE_PORT,
    "endpoints.iggy_tcp.listeners.secure.tls.enabled": True,
}
_names = count(1)


@pytest.fixture(scope="module")
def secure() -> Iterator[BrokerProcess]:
    with testing.broker(settings=OWN) as running:
        yield running


@pytest.mark.parametrize("release", ["", "&release=0.6", "&release=0.11"])
def test_messages_go_there_and_back(secure: BrokerProcess, release: str) -> None:
    url = f"iggy://{secure.endpoints['iggy_tcp.secure']}?ca_file={secure.data_dir / 'certificate.pem'}{release}"
    name = f"topic{next(_names)}"
    producer = lading.Producer(url)
    producer.transport.create_topic(name)
    producer.send(name, b"hidden", headers={"carrier": "UA"})
    producer.close()
    with lading.Consumer(url, name, group="g", timeout_s=0) as consumer:
        assert [message.payload for message in consumer] == [b"hidden"]


def test_what_fails_is_explained(secure: BrokerProcess) -> None:
    url = f"iggy://{secure.endpoints['iggy_tcp.secure']}"
    with pytest.raises(Unreachable, match=r"TLS failed: .*self-signed certificate; .* as ca_file"):
        IggyTransport(url, tls="true").topics()
    plain = IggyTransport(f"iggy://{secure.endpoints['iggy_tcp']}", tls=True, timeout_s=5)
    with pytest.raises(Unreachable, match=r"TLS failed: .*the server has no TLS there"):
        plain.topics()
