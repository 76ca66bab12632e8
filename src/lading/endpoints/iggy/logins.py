"""Who may log in to Iggy's endpoints: while no users are set up, whoever is on this machine."""

from __future__ import annotations

from typing import Final

from ...model.errors import Reason, Refusal
from ...settings import Address

ROOT_NAME: Final = "iggy"
"""The user whom Iggy's servers begin with."""


class Logins:
    """Checks logins of one listener; ``is_open`` says that it takes clients of other machines as they are."""

    def __init__(self, *, is_open: bool) -> None:
        self._is_open = is_open

    def check(self, here: Address) -> None:
        """Take a client at its word that reached this broker at ``here``; Refusal where it may come from elsewhere."""
        if not (self._is_open or here.loopback):
            raise Refusal(Reason.UNAUTHENTICATED, "no users are set up: only clients on this machine may log in")
