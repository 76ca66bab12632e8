"""States set later hide messages from those who ask for available ones, and move nobody's position."""

from __future__ import annotations

import time
from typing import Any

import pytest

from lading.model.kinds import Kind
from lading.model.state import State
from lading.transports.lading.transport import LadingTransport
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


def test_what_a_filter_marks_is_hidden_and_copied_as_a_dead_letter(
    client: Session, admin: LadingTransport, topic: str
) -> None:
    client.create_topic(topic, 1)
    admin.alter_topic(topic, {"dead_letter_topic": f"dead-{topic}", "hide_states": True})
    client.send(topic, [Sending(b"%d" % number, headers=[("n", Kind.STRING, b"%d" % number)]) for number in range(6)])
    done = admin.put_states(topic, {"where": "n IN ('1', '4') AND state = 'available'", "state": "poisoned"})
    assert (done["matched"], done["changed"], done["done"]) == (2, 2, True)
    assert [message.payload for message in client.read(topic)] == [b"0", b"2", b"3", b"5"]
    copies: list[dict[str, Any]] = []
    deadline = time.monotonic() + 10
    while len(copies) < 2 and time.monotonic() < deadline:
        copies = [row for batch in admin.query(f"dead-{topic}", 0, 0).batches for row in batch.to_pylist()]
    assert [copy["payload"] for copy in copies] == [b"1", b"4"]
    headers = [[(one["key"], one["value"]) for one in copy["headers"]] for copy in copies]
    assert [one[:3] for one in headers] == [
        [("n", b"%d" % n), ("lading-reason", b"poisoned"), ("lading-origin", f"{topic}/0/{n}".encode())] for n in (1, 4)
    ]
