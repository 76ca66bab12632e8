"""Differences of youzan's fork of NSQ from upstream: its version, its responses, and topics fixed to one form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ...broker.core.topology import Topic

VERSION: Final = "0.3.7-HA.1.13.0"
"""Version in responses: the fork's clients pass over nodes whose version has no HA in it (nsq.md 5.3)."""

YOUZAN: Final = "youzan"
"""Value of ``nsq.compat`` with which errors are the fork's."""
EXTENDED: Final = "extended"
PLAIN: Final = "plain"
"""Forms a topic may be fixed to (TopicSettings.header_form); None leaves it to each client."""


def takes_ext(topic: Topic) -> bool:
    """Return whether messages with an ext may be published to a topic.

    Its readers see it in every response about the topic.
    """
    return topic.settings.header_form != PLAIN
