"""The user that a connection acts for, from its login to its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .quotas import QuotaMeter


@dataclass(slots=True, eq=False, weakref_slot=True)
class Principal:
    """One login. A session holds it, passes it to ``AccessControl.allows``, and calls ``add_revoked_callback``."""

    name: str
    """The name of the user in rules; empty while no users are set up."""
    user_id: int = 0
    """0 for principals without a user here: strangers, and those known by a certificate or another issuer."""
    token: str | None = None
    """The name of the personal access token that was shown."""
    ends_us: int | None = None
    """The date at which the login becomes invalid, such as that of its token."""
    is_trusted: bool = False
    """Whether a token of the settings was shown: everything is allowed."""
    is_revoked: bool = False
    """The user or the token was deleted, or has ended: nothing is allowed any more."""
    meter: QuotaMeter | None = None
    """The meter of a user's requests; None without a quota, as such requests are not counted."""
    _callbacks: list[Callable[[], None]] = field(default_factory=list)

    def add_revoked_callback(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` once when the login becomes invalid, so that its connection ends.

        Returns a function that cancels it. A session gives ``connection.abort`` here and cancels when it is lost.
        """
        self._callbacks.append(callback)

        def cancel() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return cancel

    def revoke(self) -> None:
        """Make the login invalid; called by ``AccessControl``."""
        self.is_revoked = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
