"""Every dialect by name and code, from the rows of the protocols: they choose the reader of a log's bytes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pkgutil import resolve_name
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.model.batch import schema_of_fields
from lading.model.errors import LocalError
from lading.model.run import Decoded, Run
from lading.model.scan_request import ScanRequest

from .protocols import DIALECTS


class Dialect(Protocol):
    """A byte format, as the log's readers and the broker need it. Rows of protocols name the module of each."""

    @property
    def name(self) -> str:
        """The name of the dialect."""

    @property
    def code(self) -> int:
        """The dialect's code in chunk envelopes."""

    def decode(self, run: Run, request: ScanRequest = ScanRequest()) -> Iterator[Decoded]:
        """Return the messages of ``run`` that were asked for, in portions. Raises MalformedMessage and nothing else."""

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """Return a chunk body that holds the rows of a Batch with their offsets.

        Raises LimitExceeded for what it cannot hold.
        """

    def salvage(self, run: Run) -> Run:
        """Find the messages of damaged chunks that pass the dialect's own checks, in order, each in a chunk of its own.

        A damaged chunk itself may not be decoded: lengths inside it may be wrong.
        """


@runtime_checkable
class HeaderBlockDialect(Protocol):
    """A dialect whose messages may have a header block without a header in it."""

    def with_block(self, run: Run, first: int, end: int) -> NDArray[np.bool_]:
        """Return which messages with first <= offset < end have a block. Raises MalformedMessage if the bytes are
        invalid."""


@cache
def dialect(code_or_name: int | str) -> Dialect:
    """Return the dialect with that code or name, imported at first use. Raises LocalError if it does not exist."""
    row = next((row for row in DIALECTS.values() if code_or_name in (row.code, row.name)), None)
    if row is None:
        known = ", ".join(f"{row.name} ({code})" for code, row in sorted(DIALECTS.items()))
        raise LocalError(f"dialect {code_or_name!r} does not exist; known are {known}")
    found: Dialect = resolve_name(row.dialect)
    return found


def decode(run: Run, request: ScanRequest = ScanRequest()) -> Iterator[Decoded]:
    """Return the messages of ``run`` that were asked for, read by its dialect; see Dialect.decode."""
    return dialect(run.dialect).decode(run, request)


def to_batch(decoded: Decoded) -> pa.RecordBatch:
    """Return a Batch from columns that were decoded with all FIELDS; KeyError names the one that is missing.

    It has origin times if they were decoded too.
    """
    schema = schema_of_fields(decoded.columns)
    return pa.RecordBatch.from_arrays([decoded.columns[name] for name in schema.names], schema=schema)
