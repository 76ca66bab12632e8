"""What a protocol is, as data: one row for each, which every room reads instead of asking for a protocol by name.

A row lies in ``dialects/<name>/protocol.py`` and is listed in ``dialects/protocols.py``. Rows import limits and nothing
else, so that whoever asks for a port or a rule loads no codec.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class AbortedRecords(Enum):
    """What a reader gets of aborted and control records."""

    SKIPPED = "skipped"
    LISTED = "listed"
    """The reader gets them with their list, as Kafka does."""


class UnavailableMessages(Enum):
    """What a reader gets of messages whose state is not ``available``."""

    SHOWN = "shown with their state"
    HIDDEN = "hidden"
    CHOSEN = "shown with their state, those of other states than the reader asks for left out"


@dataclass(frozen=True, slots=True)
class VisibilityRule:
    """What one kind of reader sees. No reader sees what is not synced (docs/reference/visibility.md)."""

    name: str
    """The reader, as the docs call it."""
    open_transactions: bool
    aborted: AbortedRecords
    states: UnavailableMessages
    chosen_states: frozenset[int] = frozenset()
    """The states that a reader asks for, if ``states`` is CHOSEN; available is one of them or not."""


class Scheme(NamedTuple):
    """One URL scheme: its transport, the port it means by default, and an example for messages to people."""

    transport: str
    """``module:class``, called with the URL and the transport's options."""
    port: int | None
    example: str
    is_queue: bool = False
    """Whether reading takes messages: there is nothing to seek in, and nothing to read twice."""


class EndpointSpec(NamedTuple):
    """A listening endpoint: its key in the settings, and ``module:function`` that makes it from the services."""

    name: str
    factory: str


@dataclass(frozen=True, slots=True)
class Protocol:
    """One protocol: what it is called, who reads its bytes, where it listens, and what it cannot show."""

    name: str
    """As positions and groups are stored under it; it never changes."""
    title: str
    """As people know it."""
    dialects: tuple[int, ...]
    """Codes of its dialects in chunk envelopes; its readers are given the first."""
    endpoints: tuple[EndpointSpec, ...]
    schemes: Mapping[str, Scheme]
    visibility: tuple[VisibilityRule, ...]
    topic_error: Callable[[str, int], str | None]
    """Why clients cannot see a topic of this flat name with so many partitions, or not all of it; None if they can."""


def accept_any_topic(name: str, partitions: int) -> None:
    """Return None: the protocol can show every topic."""
