"""Why a message goes to quarantine: all reasons, with their messages for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SENTENCES: Final[dict[str, str]] = {
    "missing_header": "the header {header!r} is required and the message has none",
    "null_header": "the header {header!r} is required and its value is null",
    "bad_value": "the header {header!r} has a value that is no {type} under encoding {encoding}",
    "checksum_mismatch": "the payload is not what its checksum says",
}
"""Reason to message; checks run in the order of the contract, the checksum last."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One way in which a message can violate a contract: the reason, the header concerned, the message for people."""

    reason: str
    header: str | None
    sentence: str

    @classmethod
    def of(cls, reason: str, header: str | None = None, **words: str) -> Failure:
        """Return the failure with its message filled in."""
        return cls(reason, header, SENTENCES[reason].format(header=header, **words))

    @property
    def counter(self) -> str:
        """Its name among the counts of a manifest."""
        return f"reason.{self.reason}" if self.header is None else f"reason.{self.reason}.{self.header}"


def reason_of(counter: str) -> tuple[str, str] | None:
    """Return reason and header (empty if it concerns none) of a counter, or None for a counter of something else."""
    word, _, rest = counter.partition(".")
    if word != "reason":
        return None
    reason, _, header = rest.partition(".")
    return reason, header
