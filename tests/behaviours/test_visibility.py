"""States set later hide messages from those who ask for available ones, and move nobody's position."""

from __future__ import annotations

import pytest

from lading.model.state import State
from lading.transports.lading import LadingTransport
from tests.behaviours.rows import Sending, Session


@pytest.mark.parametrize("state", [State.UNAVAILABLE, State.POISONED, State.MARKED_FOR_DELETION])
def test_hidden_messages_are_not_read(client: Session, admin: LadingTransport, topic: str, state: State) -> None:
    client.create_topic(topic, 1)
    client.send(topic, [Sending(b"%d" % number) for number in range(6)])
    admin.set_state(topic, 0, 2, 4, state)
    seen = client.read(topic)
    assert [message.offset for message in seen] == [0, 1, 4, 5]
    assert client.end(topic) == 6
    admin.set_state(topic, 0, 2, 4, State.AVAILABLE)
    assert [message.offset for message in client.read(topic)] == list(range(6))
