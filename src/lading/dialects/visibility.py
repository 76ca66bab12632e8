"""Which protocols cannot show a topic, and why: a name or a partition that they have no form for (their limits)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from .kafka import names as kafka
from .nsq import limits as nsq


class Rule(NamedTuple):
    """What a protocol asks of a topic, ``holds(name, partitions)``, and the words for one that is otherwise."""

    protocol: str
    holds: Callable[[str, int], bool]
    words: str


RULES: Final = (
    Rule(
        "Kafka",
        lambda name, partitions: kafka.is_legal(name),
        f"a name there has 1 to {kafka.TOPIC_NAME_MAX} letters, digits, '.', '_' and '-', and is not '.' or '..'",
    ),
    Rule(
        "NSQ",
        lambda name, partitions: nsq.is_name(name),
        f"a name there has 1 to {nsq.NAME_BYTES_MAX} letters, digits, '.', '_' and '-', and may end with '#ephemeral'",
    ),
    Rule(
        "NSQ",
        lambda name, partitions: partitions <= nsq.PARTITIONS_MAX,
        f"message ids there have room for {nsq.PARTITIONS_MAX:,} partitions: those behind cannot be written or read",
    ),
)
"""Iggy says every name. Of one protocol the first rule that is broken counts."""


def hidden(name: str, partitions: int) -> dict[str, str]:
    """Protocol -> why its clients cannot see a topic of this name (as it is outside of Iggy), or not all of it."""
    found: dict[str, str] = {}
    for rule in RULES:
        if not rule.holds(name, partitions):
            found.setdefault(rule.protocol, rule.words)
    return found
