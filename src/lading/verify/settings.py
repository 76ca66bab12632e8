"""Settings of a verification: two topics, the compared parts of their messages, and the file of progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from ..model.errors import SettingError
from ..transports.fetched import States
from ..transports.open import is_queue, without_options
from ..transports.topic_address import TopicAddress, is_url

Fact = Literal["headers", "kinds", "key", "payload", "timestamp", "state", "id"]
FACTS: Final[tuple[Fact, ...]] = get_args(Fact)
DEFAULT_FACTS: Final[tuple[Fact, ...]] = ("headers", "kinds", "key", "payload")
"""Not times and ids: servers of Iggy and NSQ assign their own. ``headers`` are names and values in their order."""
RANGE_MESSAGES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class VerifySettings:
    """One verification: ``a`` and ``b`` are topics, each as ``scheme://host:port/topic`` or ``directory/topic``."""

    a: str
    b: str
    facts: Sequence[Fact] = DEFAULT_FACTS
    ignored_headers: Sequence[str] = ()
    states: States = "available"
    wait_ms: int = 10_000
    """The time to wait for new messages in ``b`` if it has fewer than ``a``: a mirror may be running."""
    range_messages: int = RANGE_MESSAGES
    """Messages under one digest; a resumed run begins at a border of these."""
    state: Path | None = None
    """File that keeps how far the topics are equal; None: each run begins anew."""

    def check(self) -> None:
        """Raise SettingError if the settings are invalid."""
        if not self.facts:
            raise SettingError(f"nothing to compare; name one of {', '.join(FACTS)}")
        first, second = self.list_topics()
        if first == second:
            raise SettingError(f"{first.url}: both topics are the same; name another one to compare it with")

    def list_topics(self) -> tuple[TopicAddress, TopicAddress]:
        """Return both topics; a second one that names only its server has the name of the first.

        Raises SettingError for a text without a topic, and for queues, which cannot be read by offset.
        """
        first = _parse_topic(self.a)
        return first, _parse_topic(self.b, first.topic)

    def describe_comparison(self) -> dict[str, Any]:
        """Return the settings that digests depend on: digests of two runs can be compared only if these are equal."""
        return {
            "facts": sorted(self.facts),
            "ignored_headers": sorted(self.ignored_headers),
            "states": self.states,
            "range_messages": self.range_messages,
        }


def _parse_topic(text: str, default_topic: str | None = None) -> TopicAddress:
    if is_url(text) and not text.startswith("file://"):
        if is_queue(text):
            raise SettingError(
                f"{without_options(text)}: a queue cannot be read twice by offset; compare what a mirror wrote from it"
            )
        url, mark, query = text.partition("?")
        server, slashes, rest = url.partition("://")
        host, _, topic = rest.partition("/")
        if default_topic is not None and not topic.strip("/"):
            return TopicAddress(f"{server}{slashes}{host}{mark}{query}", default_topic)
        return TopicAddress.parse(text)
    path = Path(text.removeprefix("file://"))
    if default_topic is not None and (path / "catalog.sqlite").exists():
        return TopicAddress(str(path), default_topic)
    return TopicAddress(str(path.parent), path.name)
