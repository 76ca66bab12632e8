"""Why a message goes to quarantine: every reason there is, with the sentence that people read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SENTENCES: Final[dict[str, str]] = {
    "missing_header": "the header {header!r} is required and the message has none",
    "null_header": "the header {header!r} is required and its value is null",
    "bad_value": "the header {header!r} has a value that is no {type} under encoding {encoding}",
    "checksum_mismatch": "the payload is not what its checksum says",
}
"""Reason → sentence; the order of checks is that of the contract, the checksum comes last."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that can be wrong with a message of one contract: the reason, the header it is about, the sentence."""

    reason: str
    header: str | None
    sentence: str

    @classmethod
    def of(cls, reason: str, header: str | None = None, **words: str) -> Failure:
        """The failure with its sentence filled in."""
        return cls(reason, header, SENTENCES[reason].format(header=header, **words))

    @property
    def counter(self) -> str:
        """Its name among the counts of a manifest."""
        return f"reason.{self.reason}" if self.header is None else f"reason.{self.reason}.{self.header}"


def reason_of(counter: str) -> tuple[str, str] | None:
    """Reason and header (empty where it is about none) of a counter; None for a counter of something else."""
    word, _, rest = counter.partition(".")
    if word != "reason":
        return None
    reason, _, header = rest.partition(".")
    return reason, header
