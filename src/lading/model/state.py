"""Whether a message may be consumed: the four states of Iggy's reference implementation, with its codes."""

from __future__ import annotations

from enum import IntEnum


class State(IntEnum):
    """Message state; the codes are those of the wire and of the ``state`` column (iggy.md A2)."""

    AVAILABLE = 1
    UNAVAILABLE = 10
    POISONED = 20
    MARKED_FOR_DELETION = 30

    @property
    def word(self) -> str:
        """The underscored word that JSON, the CLI and filters use, e.g. ``marked_for_deletion``."""
        return self.name.lower()

    def __str__(self) -> str:
        return self.word

    def __format__(self, spec: str) -> str:
        """Return the word, formatted as a string; the number if ``spec`` ends in ``d``."""
        return format(int(self) if spec.endswith("d") else self.word, spec)


STATE_BY_WORD: dict[str, State] = {state.word: state for state in State}
