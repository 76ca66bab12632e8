"""Work that the broker does by itself, which goes on if the disk refuses some of it.

A refusal is counted, logged and tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ...model.errors import Refusal
from .counters import Counters

LOG: Final = logging.getLogger("lading.broker")


class Attempts:
    """The only place where an error of the broker's own work ends."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._last_failure = ""

    def attempt(self, action: Callable[..., object], *arguments: object) -> None:
        """Do one thing; no other duty waits for what the disk refuses now, or for a fault of ours."""
        try:
            action(*arguments)
        except Exception as error:
            self._counters.failed_maintenance += 1
            if str(error) != self._last_failure:
                self._last_failure = str(error)
                # a refusal of the disk is logged without its stack, which tells nothing
                fault = None if isinstance(error, (Refusal, OSError)) else error
                LOG.warning("%s; trying again", error, exc_info=fault)
