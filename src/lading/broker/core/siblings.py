"""Other processes that serve the same topics: clients of NSQ find all of them by any lookup."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class SiblingAddress(NamedTuple):
    """The address at which clients of NSQ reach a process."""

    hostname: str
    host: str
    tcp_port: int
    http_port: int
    """The HTTP port; 0 without HTTP."""


class Siblings:
    """This process as others see it, and the others; a data directory has only one process."""

    def __init__(self) -> None:
        self.find_own: Callable[[], SiblingAddress | None] = lambda: None
        """Returns the address at which this process serves NSQ, or None; from any thread."""
        self.list_others: Callable[[], Sequence[SiblingAddress]] = lambda: ()
        """Returns the addresses of the others; on the event loop."""
