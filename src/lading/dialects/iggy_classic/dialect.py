"""Iggy classic as the registry knows it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa

from lading.model.batch import FIELDS
from lading.model.limits import BATCH_BYTES, BATCH_ROWS
from lading.model.run import Decoded, Run

from ..carried import decode_restored
from . import messages
from .layout import POSITION_MAX


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
        yield from decode_restored(messages.decode_columns, run, first=first, end=end, fields=fields, keys=keys, **caps)

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """See registry.Dialect.encode."""
        return messages.encode_stored(batch)

    def salvage(self, run: Run) -> Run:
        """See registry.Dialect.salvage."""
        return messages.salvage(run)


DIALECT = IggyClassic()
