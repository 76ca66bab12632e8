"""Time-outs of coordinated groups of one kind: when the next one is due, and a walk over the groups then."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from ..core.component import NEVER_US, SOON_US

LOG: Final = logging.getLogger("lading.broker")
RETRY_US: Final = 1_000_000
"""How long after a failure the time-outs of a group are tried again."""

GROUPS_AT_ONCE: Final = 1_000
"""Groups that are looked at in one tick: some milliseconds."""

SHOWN_MAX: Final = 3
SILENT: Final = "sent no heartbeat within their session time-out"
"""The default reason for removing a member."""

Group = TypeVar("Group")


def log_expired(name: str, members: Sequence[str], problem: str = SILENT) -> None:
    """Log the members without which a group continues: one line for all, as there may be thousands."""
    if members:
        more = f" and {len(members) - SHOWN_MAX} more" if len(members) > SHOWN_MAX else ""
        shown = ", ".join(members[:SHOWN_MAX])
        LOG.info("group %r: went on without members that %s: %s%s", name, problem, shown, more)


class GroupTimeOuts:
    """The next time-out among all groups of one kind."""

    def __init__(self, on_due: Callable[[], None]) -> None:
        """``on_due`` is called when ``due_us`` comes nearer."""
        self._due_us = NEVER_US
        self._left: list[str] = []
        """The groups that the present walk has not looked at yet."""
        self._on_due = on_due

    @property
    def due_us(self) -> int:
        """The next time-out; at once while a walk is not at its end."""
        return SOON_US if self._left else self._due_us

    def watch(self, deadline_us: int) -> None:
        """Have ``expire`` called at that time at the latest."""
        if deadline_us < self._due_us:
            self._due_us = deadline_us
            self._on_due()

    def expire(
        self, groups: Mapping[str, Any], kind: type[Group], expire: Callable[[Group, int], None], now_us: int
    ) -> None:
        """If one is due, call ``expire`` for each group of the kind; it watches what is left of the group.

        Of many groups it is called for some; the next ticks continue. A group whose time-outs fail is tried again, and
        holds up no other.
        """
        if now_us < self.due_us:
            return
        if not self._left:
            self._due_us = NEVER_US
            self._left = list(groups)
        # from the end, which is fastest; a group that is new since is watched from its beginning
        some, self._left = self._left[-GROUPS_AT_ONCE:], self._left[:-GROUPS_AT_ONCE]
        for name in some:
            group = groups.get(name)
            if not isinstance(group, kind):
                continue
            try:
                expire(group, now_us)
            except Exception:
                LOG.exception("group %r: time-outs failed; they are tried again", name)
                self.watch(now_us + RETRY_US)
