"""Header keys to locate: as bytes for a dialect's kernel, whose results are returned by the requested texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lading.model.kinds import Kind
from lading.model.run import Located

SPARE_BYTES: Final = 8
"""Size of the room after the last key, so that whole words may be loaded."""

_ABSENT: Final = -1


class RequestedKeys:
    """Keys by their texts; ``stored_key`` gives the bytes of a text in the dialect, None if no key there has it."""

    def __init__(self, keys: Sequence[str], stored_key: Callable[[str], bytes | None]) -> None:
        self._rows: dict[str, int | None] = {}
        known: list[bytes] = []
        for text in dict.fromkeys(keys):
            data = stored_key(text)
            self._rows[text] = None if data is None else len(known)
            known += [] if data is None else [data]
        self.bytes = np.frombuffer(b"".join(known) + bytes(SPARE_BYTES), np.uint8)
        self.ends = np.cumsum([len(data) for data in known], dtype=np.int64)

    def __len__(self) -> int:
        """Return how many of the keys the dialect can have, which is how many rows a kernel fills."""
        return len(self.ends)

    def locate(
        self,
        data: NDArray[np.uint8],
        count: int,
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        kinds: NDArray[np.int8] | None = None,
    ) -> dict[str, Located]:
        """Locate the values of the first ``count`` messages in ``data``; without ``kinds`` every value is raw."""
        found: dict[str, Located] = {}
        for text, row in self._rows.items():
            if row is None:
                nowhere = np.zeros(count, np.int64)
                found[text] = Located(data, nowhere, nowhere + _ABSENT, np.zeros(count, np.int8))
                continue
            length = lengths[row, :count]
            kind = _raw_kinds(length) if kinds is None else kinds[row, :count]
            found[text] = Located(data, starts[row, :count], length, kind)
        return found


def _raw_kinds(lengths: NDArray[np.int64]) -> NDArray[np.int8]:
    kind = np.full(len(lengths), int(Kind.RAW), np.int8)
    absent = lengths == _ABSENT
    if absent.any():
        kind[absent] = 0
    return kind
