"""Rules of the protocol whose clients read channels; the channels themselves do not depend on a protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...model.protocol import VisibilityRule


class ChannelRules(NamedTuple):
    """Which messages a channel shows, which header selects their subscribers, and whether the channel is ephemeral."""

    reader: VisibilityRule
    uncommitted_reader: VisibilityRule
    """The reader that a channel uses if it shows messages of open and aborted transactions."""
    tag_header: str
    """The header whose text says which subscribers a message is for."""
    is_ephemeral: Callable[[str], bool]
    """Whether a topic or channel with this name is deleted after its last user has left."""
