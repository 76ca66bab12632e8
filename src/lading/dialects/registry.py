"""Every dialect by name and code: the one table through which the log's bytes find who can read them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Final, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.model.batch import FIELDS, SCHEMA
from lading.model.errors import LocalError
from lading.model.run import Decoded, Run
from lading.model.scan_request import ScanRequest

from .codes import IGGY_CLASSIC, KAFKA, NATIVE, NSQ

MODULES: Final[dict[int, str]] = {
    NATIVE: "native",
    IGGY_CLASSIC: "iggy_classic",
    KAFKA: "kafka",
    NSQ: "nsq",
}
"""Dialect code, as it stands in chunk envelopes -> name, which is also its package in this room."""


class Dialect(Protocol):
    """What the log's readers and the broker need of a byte format. Each package has one as ``dialect.DIALECT``."""

    @property
    def name(self) -> str:
        """The name of the dialect and of its package."""

    @property
    def code(self) -> int:
        """Its code in chunk envelopes."""

    def decode(self, run: Run, request: ScanRequest = ScanRequest()) -> Iterator[Decoded]:
        """The messages of ``run`` that were asked for, in portions. Raises MalformedMessage and nothing else."""

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """A chunk body that holds the rows of a Batch with their offsets; LimitExceeded for what it cannot hold."""

    def salvage(self, run: Run) -> Run:
        """Those messages of damaged chunks that pass the dialect's own checks, each as a chunk of its own, in order.

        A damaged chunk itself may not be decoded: lengths inside it may be wrong.
        """


@runtime_checkable
class HeaderBlockDialect(Protocol):
    """A dialect whose messages may have a header block without a header in it."""

    def with_block(self, run: Run, first: int, end: int) -> NDArray[np.bool_]:
        """Which of the messages with first <= offset < end have a block; MalformedMessage at what is none."""


@cache
def dialect(code_or_name: int | str) -> Dialect:
    """The dialect with that code or name, imported when first asked for; LocalError where there is none."""
    names = {code: name for code, name in MODULES.items() if code_or_name in (code, name)}
    if not names:
        known = ", ".join(f"{name} ({code})" for code, name in MODULES.items())
        raise LocalError(f"there is no dialect {code_or_name!r}; known are {known}")
    found: Dialect = import_module(f"lading.dialects.{names.popitem()[1]}.dialect").DIALECT
    return found


def decode(run: Run, request: ScanRequest = ScanRequest()) -> Iterator[Decoded]:
    """The messages of ``run`` that were asked for, read by its dialect; see Dialect.decode."""
    return dialect(run.dialect).decode(run, request)


def to_batch(decoded: Decoded) -> pa.RecordBatch:
    """A Batch from columns that were decoded with all FIELDS; KeyError names the one that is missing."""
    return pa.RecordBatch.from_arrays([decoded.columns[name] for name in FIELDS], schema=SCHEMA)
