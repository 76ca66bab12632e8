"""Differences of youzan's fork of NSQ from upstream: its version, its responses, and topics fixed to one form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ...broker.core.topology import Topic

VERSION: Final = "0.3.7-HA.1.13.0"
"""Version in responses: the fork's clients skip nodes whose version does not contain HA (nsq.md 5.3)."""

YOUZAN: Final = "youzan"
"""Value of ``nsq.compat`` that selects the fork's errors."""
EXTENDED: Final = "extended"
PLAIN: Final = "plain"
"""Forms a topic may be fixed to (TopicSettings.header_form); None leaves it to each client."""


def takes_ext(topic: Topic) -> bool:
    """Return whether messages with an ext may be published to a topic.

    The topic's readers see this in every response about it.
    """
    return topic.settings.header_form != PLAIN
