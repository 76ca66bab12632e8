"""``Filter``: a typed condition, which messages it selects, and the fields and header keys that are decoded for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc

from ..model.batch import FIELDS, SCHEMA_WITH_ORIGIN
from ..model.run import Decoded
from ..payloads.form import JSON_FORM, PayloadForm, find_fields
from .tree import AnyHeader, Condition, Field, HeaderRef, PayloadRef, operands

if TYPE_CHECKING:
    from ..columns.contract import Projection
    from .values import Messages


@dataclass(frozen=True)
class Filter:
    """A typed condition over one message.

    ``text`` is what was written; ``tree`` what evaluators compile; ``header_keys`` the headers whose last value must be
    located, ``fields`` the message fields to decode (``headers`` among them if ``any(...)`` is used). ``unquoted`` are
    the headers whose plain name is the right side of a comparison, although a text may be meant.
    """

    text: str
    tree: Condition
    unquoted: tuple[str, ...] = ()
    form: PayloadForm = JSON_FORM
    """How payloads are read."""

    @cached_property
    def header_keys(self) -> tuple[str, ...]:
        """Keys of headers that are read by their last value, in no special order, each once."""
        nodes = operands(self.tree)
        of_payloads = self.form.list_headers(node.path for node in nodes if isinstance(node, PayloadRef))
        return tuple(sorted({*(node.key for node in nodes if isinstance(node, HeaderRef)), *of_payloads}))

    @cached_property
    def fields(self) -> frozenset[str]:
        """Batch fields that the filter reads, apart from the located headers."""
        nodes = operands(self.tree)
        every = {"headers"} if any(isinstance(node, AnyHeader) for node in nodes) else set()
        every |= {*find_fields(node.path for node in nodes if isinstance(node, PayloadRef))}
        return frozenset({node.name for node in nodes if isinstance(node, Field)} | every)

    def mask(self, source: pa.RecordBatch | Decoded | Messages) -> pa.BooleanArray:
        """Return true, false or null (unknown) for each message.

        A RecordBatch needs ``headers`` and ``fields``, Decoded has ``header_keys`` located and ``fields`` decoded;
        LocalError names what is missing. Filters with the same Messages convert each header once.
        """
        from .evaluate import evaluate

        return evaluate(self.tree, self.header_keys, source, self.form)

    def selects(self, source: pa.RecordBatch | Decoded | Messages) -> pa.BooleanArray:
        """Return ``mask`` with unknown as false: the messages that a reader with this filter gets."""
        mask = self.mask(source)
        return cast("pa.BooleanArray", pc.fill_null(mask, pa.scalar(False))) if mask.null_count else mask

    def __str__(self) -> str:
        return self.text


def select_fields(projection: Projection | None, condition: Filter | None, *others: str) -> frozenset[str]:
    """Return the message fields that projection and condition read, and ``others``; all FIELDS without a projection."""
    if projection is None:
        return frozenset(FIELDS)
    asked = {*projection.message_fields, *(condition.fields if condition else ()), *others}
    return frozenset(asked.intersection(SCHEMA_WITH_ORIGIN.names))


def select_keys(projection: Projection | None, condition: Filter | None) -> tuple[str, ...]:
    """Return the header keys that projection and condition read, each once."""
    shown = projection.header_keys if projection else ()
    return tuple(dict.fromkeys((*shown, *(condition.header_keys if condition else ()))))
