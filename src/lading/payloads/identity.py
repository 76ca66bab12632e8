"""The schemas that payloads and keys name by their ids, as values of columns: id, GUID, subject and version."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..model.lazy_dataclass import lazy_dataclass
from ..model.run import Located
from .found import FoundValues, ValuePart
from .numbers import locate_texts
from .paths import SCHEMA_PARTS, Path


@lazy_dataclass(frozen=True, slots=True)
class SchemaIdentity:
    """A schema of a registry: its id and GUID, as far as they are known, and its versions by subject."""

    schema_id: int | None
    guid: str | None
    versions: tuple[tuple[str, int], ...] = ()

    def choose_version(self, wanted: Collection[str]) -> tuple[str | None, int | None]:
        """Return the subject among ``wanted`` and its version, else the only one; None if there are several."""
        own = [one for one in self.versions if one[0] in wanted] or list(self.versions)
        return own[-1] if len({subject for subject, _ in own}) == 1 else (None, None)


@lazy_dataclass(frozen=True, slots=True)
class IdentityValues:
    """The schema of each row, or one ``part`` of it; without a part, the schema's id, or else its GUID."""

    columns: Mapping[str, pa.Array[Any]]
    """Columns by the names of SCHEMA_PARTS: ids and versions as int64, others as strings; null if not known."""
    part: str = ""

    @property
    def absent(self) -> NDArray[np.bool_]:
        """See FoundValues."""
        rows: NDArray[np.bool_] = self._to_array().is_null().to_numpy(zero_copy_only=False)
        return rows

    @property
    def null(self) -> NDArray[np.bool_]:
        """See FoundValues."""
        return np.zeros(len(self._to_array()), np.bool_)

    @property
    def readable(self) -> NDArray[np.bool_]:
        """See FoundValues."""
        return ~self.absent

    @property
    def missing(self) -> NDArray[np.bool_]:
        """See FoundValues."""
        return self.absent

    def _to_array(self) -> pa.Array[Any]:
        if self.part:
            return self.columns[self.part]
        ids: Any = self.columns["id"].cast(pa.string())
        array: pa.Array[Any] = pa.array(
            [one or other for one, other in zip(ids.to_pylist(), self.columns["guid"].to_pylist(), strict=True)],
            pa.string(),
        )
        return array

    def read_as(self, type_: pa.DataType, *, whole_numbers: bool) -> tuple[Sequence[ValuePart], NDArray[np.bool_]]:
        """See FoundValues."""
        return (ValuePart(self._to_array()),), self.null

    def locate_text(self) -> Located:
        """See FoundValues: a whole schema is an object with its known parts."""
        readable = self.readable
        names = (self.part,) if self.part else SCHEMA_PARTS
        rows = zip(*(self.columns[name].to_pylist() for name in names), strict=True)
        documents = [
            row[0] if self.part else {name: one for name, one in zip(names, row, strict=True) if one is not None}
            for row in rows
        ]
        texts = [
            json.dumps(one).encode() for one, is_there in zip(documents, readable.tolist(), strict=True) if is_there
        ]
        places = np.cumsum(readable) - 1
        return locate_texts(texts, places.clip(min=0), np.where(readable, 0, -1))

    def list_items(self) -> tuple[NDArray[np.int32], IdentityValues, NDArray[np.bool_]]:
        """See FoundValues: a schema has none."""
        return np.zeros(len(self.null) + 1, np.int32), self.take(np.empty(0, np.int64)), self.null

    def list_members(self) -> tuple[NDArray[np.int32], IdentityValues, IdentityValues, NDArray[np.bool_]]:
        """See FoundValues: read a schema as a struct."""
        ends, items, rows = self.list_items()
        return ends, items, items, rows

    def walk(self, paths: tuple[Path, ...]) -> tuple[Mapping[Path, FoundValues], NDArray[np.bool_]]:
        """See FoundValues."""
        nothing: pa.Array[Any] = pa.nulls(len(self.null), pa.string())
        columns = {**self.columns, "": nothing}
        found = {
            path: IdentityValues(columns, path[0])
            if len(path) == 1 and path[0] in SCHEMA_PARTS and not self.part
            else IdentityValues({"id": nothing, "guid": nothing})
            for path in paths
        }
        return found, self.readable if not self.part else self.null

    def take(self, rows: NDArray[np.int64]) -> IdentityValues:
        """See FoundValues."""
        places: pa.Array[Any] = pa.array(rows, pa.int64())
        return IdentityValues({name: one.take(places) for name, one in self.columns.items()}, self.part)
