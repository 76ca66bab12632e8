"""Rules of the protocol whose clients read channels; channels themselves know no protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...model.protocol import VisibilityRule


class ChannelRules(NamedTuple):
    """Which messages a channel shows, which header selects their subscribers, and whether the channel is ephemeral."""

    reader: VisibilityRule
    uncommitted_reader: VisibilityRule
    """The rule of a channel that shows messages of open and aborted transactions."""
    tag_header: str
    """The header whose text says which subscribers a message is for."""
    is_ephemeral: Callable[[str], bool]
    """Whether a topic or channel of this name does not outlast its users."""
