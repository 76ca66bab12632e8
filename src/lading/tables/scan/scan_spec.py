"""The specification of a scan: source, columns, messages, checks, and which of it a server can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...columns.assemble import PLAIN, ColumnBuilders
from ...columns.contract import FIELD_TYPES, Projection, type_word
from ...filter.filter import Filter
from ...filter.parse import parse
from ...model.limits import BATCH_BYTES, BATCH_ROWS
from ...transports.fetched import States


@dataclass(frozen=True)
class ScanSpec:
    """Specification of how to read ranges: source, columns, messages, checks."""

    from_: str
    projection: Projection
    states: States = "available"
    where: str | None = None
    verify_checksum: bool = False
    checksum_ok: bool = False
    fail_on_bad_value: bool = False
    fail_on_data_loss: bool = True
    form: ColumnBuilders = PLAIN
    rows_max: int = BATCH_ROWS
    bytes_max: int = BATCH_BYTES
    transport: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def condition(self) -> Filter | None:
        """Return the parsed ``where``, typed by the header columns, if any. Raises FilterError if it is invalid."""
        if self.where is None:
            return None
        return parse(self.where, self.projection if self.projection.typed else None, form=self.projection.form)

    def server_columns(self) -> str | None:
        """Return the columns to request of a server that filters and types: message fields and header columns.

        Returns None, for whole Batches, without header columns, as the condition then has no types.
        """
        if not self.projection.headers:
            return None
        fields = {"offset", *self.projection.message_fields}
        fields |= {"payload", "checksum"} if self.verify_checksum or self.checksum_ok else set()
        words = [
            f'"{_double_quotes(column.name)}" {type_word(column.type)} {column.encoding.value} '
            f'from "{_double_quotes(column.header)}"'
            for column in self.projection.headers
        ]
        return ", ".join([*sorted(fields), *words])

    @property
    def server_may_filter(self) -> bool:
        """Whether a server that filters can carry out the whole scan.

        It does not report which header values were unreadable, and refuses header columns with a message field's name.
        A server of an earlier release would read a payload column from a header, and no server knows the schemas.
        """
        if self.projection.payload or not self.projection.form.reads_json:
            return False
        named = not any(column.name in FIELD_TYPES for column in self.projection.headers)
        return self.where is not None and named and not (self.fail_on_bad_value and self.projection.headers)


def _double_quotes(name: str) -> str:
    return name.replace('"', '""')
