"""A cache whose values have a size each: together they are bounded, however large one is."""

from __future__ import annotations

from typing import Generic, TypeVar

V = TypeVar("V")


class SizedCache(Generic[V]):
    """Values by key; the one added first is forgotten first. Threads: ``get`` from any, ``add`` from one at a time."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._values: dict[object, tuple[V, int]] = {}
        self._size = 0

    def get(self, key: object) -> V | None:
        """Return a value, None if it is not known or was forgotten."""
        found = self._values.get(key)
        return None if found is None else found[0]

    def add(self, key: object, value: V, size: int) -> None:
        """Add a value, and forget others until all are within the limit; the newest is kept, even if it is larger."""
        before = self._values.pop(key, None)
        self._size += size - (0 if before is None else before[1])
        self._values[key] = value, size
        while self._size > self._size_max and len(self._values) > 1:
            self._size -= self._values.pop(next(iter(self._values)))[1]
