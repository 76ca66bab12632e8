"""Clients whose login does not say what they are: their requests do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lading.dialects.iggy.classic.releases import RELEASES, MessageForm, guess_release
from lading.endpoints.iggy.handlers import narrow
from lading.model.kinds import Kind
from lading.testing import BrokerProcess, broker
from tests.behaviours.iggy_release_client import SHAPES, IggyReleaseSession
from tests.behaviours.rows import Sending
from tests.dialects.test_iggy_releases import CLIENTS, captured
from tests.endpoints.frames import Frames

BLANK_LOGIN = b"\4iggy\4iggy" + bytes(8)
"""With a version and a context, both empty: as the SDKs for Go and Node log in."""


class BlankSession(IggyReleaseSession):
    """A client of a release that does not say which."""

    def _connect(self) -> Frames:
        frames = Frames(self._address)
        assert frames.ask(38, BLANK_LOGIN)[0] == 0
        return frames


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker() as one:
        yield one


@pytest.mark.parametrize("release", [name for name, shape in SHAPES.items() if shape.version])
def test_a_client_that_leaves_its_version_empty_is_served(running: BrokerProcess, release: str) -> None:
    session = BlankSession(release, running.endpoints["iggy_tcp"])
    topic = f"blank-{release}"
    session.create_topic(topic, 2)
    headers = [("a", int(Kind.INT32), b"\1\0\0\0"), ("b", int(Kind.STRING), b"x")]
    for partition in range(2):
        session.send(topic, [Sending(b"one", headers), Sending(b"two")], partition)
        assert [(seen.payload, seen.headers) for seen in session.read(topic, partition)] == [
            (b"one", headers),
            (b"two", []),
        ]
    session.close()


@given(code=st.sampled_from([10, 100, 101, 120, 202, 302, 602]), payload=st.binary(max_size=120))
def test_any_bytes_leave_some_of_the_releases(code: int, payload: bytes) -> None:
    left = narrow(RELEASES, code, memoryview(payload))
    assert left
    assert [one for one in RELEASES if one in left] == list(left)


@pytest.mark.parametrize("client", [client for client in CLIENTS if CLIENTS[client] not in ("0.1", "0.4")])
def test_requests_tell_the_release_of_a_client_that_says_none(client: str) -> None:
    left = guess_release("").others
    for code, payload in captured(client).values():
        left = narrow(left, code, memoryview(payload))
    # requests of some releases are those of others, and then the newest of them stands for all
    assert CLIENTS[client] in {release.name for release in left}
    assert {release.form for release in left} <= {left[0].form, MessageForm.ZERO_COPY_CRC_32}
