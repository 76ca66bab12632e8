"""Iggy classic as the registry knows it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lading.model.batch import FIELDS, SCHEMA
from lading.model.limits import BATCH_BYTES, BATCH_ROWS
from lading.model.run import Decoded, Run

from ..carrier.form import NAME as CARRIER
from ..carrier.restore import restore
from ..located import locate
from . import messages
from .layout import ARROW_BYTES_MAX, POSITION_MAX


class IggyClassic:
    """Dialect code 2: bodies are stored messages one after another, byte for byte as they are polled."""

    name = "iggy_classic"
    code = messages.CODE

    def decode(
        self,
        run: Run,
        *,
        first: int = 0,
        end: int = POSITION_MAX,
        fields: Collection[str] = FIELDS,
        keys: Sequence[str] = (),
        max_rows: int = BATCH_ROWS,
        max_bytes: int = BATCH_BYTES,
        carrier: bool = True,
    ) -> Iterator[Decoded]:
        """See registry.Dialect.decode."""
        caps: Any = {"max_rows": max_rows, "max_bytes": max_bytes}
        if not carrier:
            yield from messages.decode_columns(run, first=first, end=end, fields=fields, keys=keys, **caps)
            return
        asked = dict.fromkeys(keys)
        # with the headers at hand a look at their keys is cheaper than locating one more in every message
        sought = {**asked, **({} if "headers" in fields else {CARRIER: None})}
        with_offset = {*fields, "offset"}
        portions = messages.decode_columns(run, first=first, end=end, fields=with_offset, keys=list(sought), **caps)
        for portion in portions:
            if _has_carrier(portion):
                yield from _restored(run, portion, fields, list(asked))
            else:
                columns = {name: column for name, column in portion.columns.items() if name in fields}
                yield Decoded(portion.count, columns, {key: portion.located[key] for key in asked})

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """See registry.Dialect.encode."""
        return messages.encode_stored(batch)

    def salvage(self, run: Run) -> Run:
        """See registry.Dialect.salvage."""
        return messages.salvage(run)


DIALECT = IggyClassic()
ABSENT = -1


def _has_carrier(portion: Decoded) -> bool:
    if CARRIER in portion.located:
        return bool((portion.located[CARRIER].length != ABSENT).any())
    headers: Any = portion.columns["headers"]
    keys = headers.values.field(0)
    ends = np.frombuffer(keys.buffers()[1], np.int32, len(keys) + 1)
    if not (ends[1:] - ends[:-1] == len(CARRIER)).any():
        return False
    return bool(pc.any(pc.equal(keys, pa.scalar(CARRIER)), min_count=0).as_py())


def _restored(run: Run, portion: Decoded, fields: Collection[str], keys: Sequence[str]) -> Iterator[Decoded]:
    """A portion in which some message has a carrier, decoded whole and with the carriers undone."""
    offsets: Any = portion.columns["offset"]
    span = {"first": offsets[0].as_py(), "end": offsets[-1].as_py() + 1}
    for whole in messages.decode_columns(run, **span, max_rows=portion.count, max_bytes=ARROW_BYTES_MAX):
        columns = [whole.columns[name] for name in FIELDS]
        batch = restore(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
        wanted = {name: batch.column(name) for name in FIELDS if name in fields}
        yield Decoded(batch.num_rows, wanted, locate(batch.column("headers"), keys) if keys else {})
