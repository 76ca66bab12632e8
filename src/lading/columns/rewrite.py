"""New headers for many messages at once: some keys removed, one header of each new key added at the end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..model.batch import HEADER_TYPE, HEADERS_TYPE
from ..model.kinds import Kind


def with_headers(
    headers: Any, added: Mapping[str, Any], kinds: Mapping[str, Kind], *, drop: Collection[str]
) -> pa.Array[Any]:
    """Return the headers without the keys of ``drop``, then ``added``, one value a message; a null adds nothing."""
    column = headers if headers.type == HEADERS_TYPE else headers.cast(HEADERS_TYPE)
    rows = len(column)
    ends: Any = column.offsets.to_numpy()
    own = column.values.slice(int(ends[0]), int(ends[-1] - ends[0]))
    parents = np.repeat(np.arange(rows), np.diff(ends))
    kept = pc.invert(pc.is_in(own.field(0), value_set=pa.array(list(drop), pa.string()))).to_numpy(zero_copy_only=False)
    parts, owners = [own.filter(pa.array(kept))], [parents[kept]]
    for key, values in added.items():
        present = values.is_valid()
        chosen = values.filter(present).cast(pa.binary())
        count = len(chosen)
        parts.append(
            pa.StructArray.from_arrays(
                [
                    pa.repeat(pa.scalar(key), count),
                    pa.repeat(pa.scalar(int(kinds[key]), pa.int8()), count),
                    chosen,
                ],
                fields=list(HEADER_TYPE),
            )
        )
        owners.append(np.flatnonzero(present.to_numpy(zero_copy_only=False)))
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    entries = pa.concat_arrays(parts).take(pa.array(order))
    bounds = np.zeros(rows + 1, np.int32)
    np.cumsum(np.bincount(owner, minlength=rows), out=bounds[1:])
    made: Any = pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), entries, type=HEADERS_TYPE)
    return cast("pa.Array[Any]", made)
