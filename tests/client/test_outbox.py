"""An outbox between two threads: one fills and closes batches, another one sends and removes them."""

from __future__ import annotations

from collections import deque
from typing import Any

from lading.client.producer import Outbox
from lading.model.headers import Headers


class TakenBetween(deque[Any]):
    """Is emptied after somebody asked whether it has something, as the thread that sends does."""

    def __len__(self) -> int:
        return 1


def filled() -> Outbox:
    outbox = Outbox()
    outbox.gathering.add(None, Headers(), b"x", None, 10, None)
    return outbox


def interrupt_closing(outbox: Outbox) -> None:
    """Close the batch up to the point where an interrupt leaves the old one to be filled."""
    outbox.waiting.append((outbox.gathering.batch(), outbox.messages))


def test_a_batch_that_is_removed_meanwhile_is_no_error() -> None:
    outbox = filled()
    outbox.waiting = TakenBetween()
    assert not outbox.is_closing


def test_a_closed_batch_that_was_sent_is_not_sent_again() -> None:
    outbox = filled()
    interrupt_closing(outbox)
    assert outbox.is_closing
    outbox.remove_first()
    assert outbox.is_closing and outbox.count == 0
    outbox.close_batch()
    assert not outbox.waiting and outbox.gathering.count == 0 and not outbox.is_closing
