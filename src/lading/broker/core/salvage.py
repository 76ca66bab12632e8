"""Salvage of a damaged chunk: the messages that pass their dialect's own checks."""

from __future__ import annotations

from ...chunk.runs import runs
from ...dialects import registry
from ...log.interface import Span
from ...model.errors import LocalError
from ...model.run import Run


def salvage(span: Span) -> Run:
    """Return the intact messages of the one chunk in a damaged span, each as a chunk of its own.

    None where the damage hit the chunk's dialect code.
    """
    damaged = runs(span.region, span.start, span.end, verify=False)[0]
    try:
        dialect = registry.dialect(damaged.dialect)
    except LocalError:
        return Run(damaged.dialect, damaged.region, damaged.chunks[:0])
    return dialect.salvage(damaged)
