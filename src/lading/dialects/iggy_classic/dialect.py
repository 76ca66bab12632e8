"""Iggy classic as the registry knows it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from lading.model.batch import FIELDS
from lading.model.limits import BATCH_BYTES, BATCH_ROWS
from lading.model.run import Decoded, Run

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
        return messages.decode_columns(
            run, first=first, end=end, fields=fields, keys=keys, max_rows=max_rows, max_bytes=max_bytes
        )

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """See registry.Dialect.encode."""
        raise NotImplementedError

    def intact(self, body: memoryview, base_offset: int, count: int) -> list[int]:
        """See registry.Dialect.intact."""
        return messages.intact(body, base_offset, count)


DIALECT = IggyClassic()
