"""Values found in payloads, and the verdicts on payloads: what the walkers of all formats return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..model.lazy_dataclass import lazy_dataclass
from ..model.run import Located
from .layout import EMPTY_ITEMS_MAX, JSON_DEPTH_MAX, MALFORMED_FIRST, SCHEMA_FIRST, VERDICT_GOOD
from .paths import KEY_ROOT, SCHEMA_ROOT, Path

VERDICTS: Final = (
    "is good", "is null", "is empty", "is JSON, and not an object", "has a character that JSON does not have there",
    "has something after its end", "ends too early", "has a control character in a string", "has an invalid escape",
    "has an invalid number", "is not UTF-8", f"has more than {JSON_DEPTH_MAX:,} objects and arrays inside one another",
    "has a number of more than 64 bits", "has a number of a branch or symbol that the schema does not have",
    "has a boolean that is neither 0 nor 1", "has an invalid length",
    f"has more than {EMPTY_ITEMS_MAX:,} items without bytes", "has an invalid field number or wire type",
    "does not begin with the id of a schema", "has a schema that does not exist", "has a schema that does not fit",
)  # fmt: skip
"""Texts of the verdicts, which follow "the payload"."""


@lazy_dataclass(frozen=True, slots=True)
class ValuePart:
    """Some values in one form: as header values, which the rules of headers convert, or as an array with a type of its
    own.

    ``rows`` are their places, None for all rows in order; a row with length -1 or -2 has no value.
    """

    values: Located | pa.Array[Any]
    rows: NDArray[np.int64] | None = None


class FoundValues(Protocol):
    """The values of one path, one row a payload, in the form of their format."""

    def read_as(self, type_: pa.DataType, *, whole_numbers: bool) -> tuple[Sequence[ValuePart], NDArray[np.bool_]]:
        """Return the values in parts of one form each, for a column of ``type_``, and a mask of unreadable values.

        With ``whole_numbers`` the text 1.0 of a number becomes 1.
        """
        ...

    def locate_text(self) -> Located:
        """Return the values as JSON texts, strings with their quotes."""
        ...

    def list_items(self) -> tuple[NDArray[np.int32], FoundValues, NDArray[np.bool_]]:
        """Return the items of arrays: the end of each row's items, all items, and which rows are arrays."""
        ...

    def list_members(self) -> tuple[NDArray[np.int32], FoundValues, FoundValues, NDArray[np.bool_]]:
        """Return the members of objects: the end of each row's members, their names, their values, and which rows are
        objects.
        """
        ...

    def walk(self, paths: tuple[Path, ...]) -> tuple[Mapping[Path, FoundValues], NDArray[np.bool_]]:
        """Return the values at paths inside these values, and which rows are objects."""
        ...

    def take(self, rows: NDArray[np.int64]) -> FoundValues:
        """Return the values of some rows."""
        ...

    @property
    def absent(self) -> NDArray[np.bool_]:
        """Which rows have no such value."""
        ...

    @property
    def null(self) -> NDArray[np.bool_]:
        """Which rows have a null at the path, or on the way to it."""
        ...

    @property
    def readable(self) -> NDArray[np.bool_]:
        """Which rows have a value at the path that is not null."""
        ...

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Which rows have no value: absent or null."""
        ...


@lazy_dataclass(frozen=True, slots=True)
class WalkedPayloads:
    """Payloads that were walked: the values of each path; the verdict on each, and the position of its error."""

    values: Mapping[Path, FoundValues]
    verdict: NDArray[np.uint8]
    position: NDArray[np.int64]
    notes: Mapping[int, str] | None = None
    """The problems of the schemas of payloads, by row."""
    keys: WalkedPayloads | None = None
    """The keys, if paths lead into them."""

    @property
    def good(self) -> NDArray[np.bool_]:
        """Which payloads are good, and not null."""
        rows: NDArray[np.bool_] = self.verdict == VERDICT_GOOD
        return rows

    def find_malformed(self, path: Path) -> NDArray[np.bool_]:
        """Return the rows in which a path leads into a payload or key that cannot be read."""
        if path[:1] == (SCHEMA_ROOT,):
            return np.zeros(len(self.verdict), np.bool_)
        return self.keys.malformed if path[:1] == (KEY_ROOT,) and self.keys is not None else self.malformed

    def find_complete(self, path: Path) -> NDArray[np.bool_]:
        """Return the rows in which a missing value is a violation: null payloads are not checked, null keys are."""
        return ~self.find_malformed(path) if path[:1] in ((KEY_ROOT,), (SCHEMA_ROOT,)) else self.good

    def describe_at(self, path: Path, row: int) -> str | None:
        """Return a sentence about the malformed payload or key that a path leads into; None for a readable one."""
        if not self.find_malformed(path)[row]:
            return None
        is_key = path[:1] == (KEY_ROOT,) and self.keys is not None
        return f"the key {self.keys.describe(row)}" if is_key and self.keys else f"the payload {self.describe(row)}"

    def find(self, verdict: int) -> NDArray[np.bool_]:
        """Return which payloads have this verdict."""
        rows: NDArray[np.bool_] = self.verdict == verdict
        return rows

    @property
    def malformed(self) -> NDArray[np.bool_]:
        """Which payloads cannot be read, because of their bytes or their schema; a null payload is not among them."""
        return self.verdict >= MALFORMED_FIRST

    def describe(self, row: int) -> str:
        """Return what is wrong with a malformed payload, as the end of a sentence about it."""
        if self.verdict[row] >= SCHEMA_FIRST:
            return (self.notes or {}).get(row, VERDICTS[self.verdict[row]])
        return f"{VERDICTS[self.verdict[row]]} (byte {int(self.position[row]):,})"
