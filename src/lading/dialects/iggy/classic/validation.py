"""Checks of an Iggy classic server before it looks anything up (iggy.md A6), for TCP and HTTP alike."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any, Final

from ....model.errors import Reason, Refusal
from ....model.lazy_dataclass import lazy_dataclass

NAME_BYTES_MAX: Final = 255
PARTITIONS_MAX: Final = 100_000

_SPACES: Final = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_SPACE_RUN: Final = re.compile(f"[{_SPACES}]+")
_NAME_PARTS: Final = re.compile(f"[-.{_SPACES}]")
_WORD_CATEGORIES: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "Pc"})
_JOINERS: Final = "\u200c\u200d"


def normalise_name(name: str) -> str:
    """Return the name as it is stored: in lower case, without outer white space, each inner run of it one dot.

    Look-ups do not do this.
    """
    return ".".join(part for part in _SPACE_RUN.split(name.lower()) if part)


def is_name(name: str) -> bool:
    """Check a name for a stream or topic: 1-255 bytes of letters, marks, digits, ``_ . -`` and white space.

    Names of white space alone, which the real server stores as empty, are refused: they could never be found again.
    """
    return (
        1 <= len(name.encode(errors="replace")) <= NAME_BYTES_MAX
        and all(
            char in _JOINERS or unicodedata.category(char) in _WORD_CATEGORIES for char in _NAME_PARTS.sub("", name)
        )
        and normalise_name(name) != ""
    )


@lazy_dataclass(frozen=True, slots=True)
class Rule:
    """Rule for a field of a command; an error has ``sentence`` and the ``value``."""

    holds: Callable[[Any], bool]
    reason: Reason
    sentence: str

    def check(self, value: Any) -> None:
        """Raise Refusal if ``value`` breaks the rule."""
        if not self.holds(value):
            raise Refusal(self.reason, self.sentence.format(value=value))


def _is_not_zero(value: int) -> bool:
    return value != 0


CLIENT_ID: Final = Rule(_is_not_zero, Reason.INVALID_CLIENT_ID, "a client id is {value}; ids begin at 1")
STREAM_ID: Final = Rule(_is_not_zero, Reason.INVALID_STREAM_ID, "a stream id is {value}; ids begin at 1")
TOPIC_ID: Final = Rule(_is_not_zero, Reason.INVALID_TOPIC_ID, "a topic id is {value}; ids begin at 1")
GROUP_ID: Final = Rule(_is_not_zero, Reason.INVALID_GROUP_ID, "a group id is {value}; ids begin at 1")
POLL_COUNT: Final = Rule(_is_not_zero, Reason.INVALID_COUNT, "a poll asks for {value} messages")
SOME_MESSAGES: Final = Rule(lambda messages: len(messages) > 0, Reason.INVALID_COUNT, "a send holds no message")
_NAME_SENTENCE: Final = "the name {value!r} is not 1 to 255 bytes of letters, digits, '_', '.', '-' and white space"
STREAM_NAME: Final = Rule(is_name, Reason.INVALID_STREAM_NAME, _NAME_SENTENCE)
TOPIC_NAME: Final = Rule(is_name, Reason.INVALID_TOPIC_NAME, _NAME_SENTENCE)
FIRST_PARTITIONS: Final = Rule(
    lambda count: count <= PARTITIONS_MAX, Reason.TOO_MANY_PARTITIONS, "{value} partitions; a topic has at most 100,000"
)
MORE_PARTITIONS: Final = Rule(
    lambda count: 1 <= count <= PARTITIONS_MAX,
    Reason.TOO_MANY_PARTITIONS,
    "{value} partitions at once; 1 to 100,000 are possible",
)
