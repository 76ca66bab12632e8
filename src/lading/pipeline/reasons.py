"""Why a message goes to quarantine: all reasons, with their messages for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..model.protocol import MessageBound
from ..transports.topic_address import TopicAddress

SENTENCES: Final[dict[str, str]] = {
    "missing_header": "the header {header!r} is required, and the message does not have it",
    "null_header": "the header {header!r} is required and its value is null",
    "bad_value": "the header {header!r} has a value that is no {type} under encoding {encoding}",
    "value_not_allowed": "the header {header!r} has a value that is none of {asked}",
    "out_of_range": "the header {header!r} has a value that is not {asked}",
    "pattern_mismatch": "the header {header!r} has a value that does not match {asked}",
    "payload_malformed": "the payload is malformed",
    "schema_unknown": "the payload has the id of a schema that does not exist",
    "schema_mismatch": "the schema of the payload does not fit the columns",
    "payload_value": "{header} {problem}",
    "unreadable_time": "the time of the message, timestamp_us, is outside the years 1 to 9999",
    "checksum_mismatch": "the payload is not what its checksum says",
    "expectation": "the expectation {header} does not hold: {condition}",
    "refused_by_target": "topic {topic} at {server} ({header}) cannot hold the message, not even with a carrier",
    "route": "the {header} takes it to quarantine: {condition}",
}
"""Reason to message; checks run in the order of the contract, then time, checksum, expectations, routes, topics."""
BREACHES: Final[dict[str, str]] = {
    "value_not_allowed": "has a value that is none of {asked}",
    "out_of_range": "has a value that is not {asked}",
    "pattern_mismatch": "has a value that does not match {asked}",
}
"""Reason to problem of a value that breaks a constraint of its column."""
TOO_LARGE: Final = (
    "topic {topic} at {server} ({header}) takes at most {bytes_max} bytes a message, headers included ({setting}), and "
    "this one has more"
)
"""The sentence of messages that a topic refuses for a bound of its own, which can be raised."""
TOO_LARGE_WHEN_SENT: Final = (
    "topic {topic} at {server} ({header}) takes fewer bytes a message, headers included ({setting}), than this one "
    "has: it was refused when it was sent, as this login may not ask for the limit"
)
"""The text if no server reported the bound."""
BY_CHOICE: Final = "route"
"""The reason of messages that are not faulty: a route sends them to quarantine."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One way in which a message can get into quarantine: the reason, what it concerns, the message for people.

    ``header`` is the header or path of the payload concerned, or the name of the expectation or route.
    """

    reason: str
    header: str | None
    sentence: str

    @classmethod
    def of(cls, reason: str, header: str | None = None, **words: str) -> Failure:
        """Return the failure with its message filled in."""
        return cls(reason, header, SENTENCES[reason].format(header=header, **words))

    @classmethod
    def bad_text(cls, field: str) -> Failure:
        """Return the failure of messages whose key or payload is not the text that the contract declares."""
        return cls("bad_value", field, f"the {field} is not UTF-8, and {field} is declared as string")

    @classmethod
    def of_payload(cls, path: str, problem: str, reason: str = "payload_value") -> Failure:
        """Return the failure of messages with a problem in the value at ``path`` of the payload."""
        return cls(reason, path, f"{path} {problem}")

    @classmethod
    def too_large(cls, header: str, topic: TopicAddress, bound: MessageBound) -> Failure:
        """Return the failure of messages above the bound of a topic."""
        words = {"bytes_max": bound.bytes_max, "setting": bound.setting}
        form = TOO_LARGE if bound.is_told else TOO_LARGE_WHEN_SENT
        sentence = form.format(header=header, topic=topic.topic, server=topic.server, **words)
        return cls("refused_by_target", header, sentence)

    @property
    def counter(self) -> str:
        """The failure's name among the counts of a manifest."""
        return f"reason.{self.reason}" if self.header is None else f"reason.{self.reason}.{self.header}"


def reason_of(counter: str) -> tuple[str, str] | None:
    """Return reason and header (empty if it concerns none) of a counter, or None for a counter of something else."""
    word, _, rest = counter.partition(".")
    if word != "reason":
        return None
    reason, _, header = rest.partition(".")
    return reason, header


def expectation_counter(name: str) -> str:
    """Return the name of an expectation among the counts of a manifest: messages for which it did not hold."""
    return f"expect.{name}"


def expectation_of(counter: str) -> str | None:
    """Return the name of the expectation that a counter counts, or None for a counter of something else."""
    word, _, name = counter.partition(".")
    return name if word == "expect" else None
