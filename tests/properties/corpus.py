"""Random messages and random filters over them, and which filter holds for which message, by the oracle."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, seed, settings

from lading.columns.contract import Projection
from lading.filter.filter import Filter
from lading.filter.parse import parse
from lading.model.errors import FilterError
from lading.model.state import State
from tests.filter.oracle import Row, holds, readable
from tests.properties.test_filter import CONTRACT, batch_of, condition, row

SEED = int(os.environ.get("LADING_TEST_SEED", "20130101"))


@dataclass
class Corpus:
    """Messages in the order of their offsets; filters that take header types as they come, and filters by a contract.

    ``expected[text]`` is per message what the oracle says of a filter: true, false, or None for unknown.
    """

    rows: list[Row] = field(default_factory=list)
    filters: list[Filter] = field(default_factory=list)
    contracted: list[Filter] = field(default_factory=list)
    contract: Projection = CONTRACT

    @property
    def batch(self) -> pa.RecordBatch:
        """The messages."""
        return batch_of(self.rows)

    def expected(self, one: Filter) -> list[bool | None]:
        """What the oracle says of a filter, message by message."""
        return [holds(message, one.tree) for message in self.rows]

    def selected(self, one: Filter) -> list[int]:
        """The offsets of the messages for which a filter is true."""
        return [at for at, truth in enumerate(self.expected(one)) if truth is True]

    def unreadable(self) -> set[int]:
        """The offsets of messages with a value that the contract cannot read."""
        return {
            at
            for at, message in enumerate(self.rows)
            if not all(readable(message, column.header, column.type, column.encoding) for column in CONTRACT.headers)
        }

    @property
    def cases(self) -> int:
        """Pairs of a message and a filter."""
        return len(self.rows) * (len(self.filters) + len(self.contracted))


def corpus(messages: int, filters: int) -> Corpus:
    """``messages`` random messages, ``filters`` random filters, the same ones for one seed; half of the filters are
    typed by the contract. Each filter is one that parses."""
    made = Corpus()

    @seed(SEED)
    @settings(
        max_examples=max(messages, 3 * filters), phases=[Phase.generate], database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(row(), condition(False), condition(True))
    def gather(message: Row, plain: str, typed: str) -> None:
        if len(made.rows) < messages:
            made.rows.append(_stored(message, len(made.rows)))
        for text, contract, found in ((plain, None, made.filters), (typed, CONTRACT, made.contracted)):
            if len(found) < filters // 2 and text not in {one.text for one in found}:
                try:
                    found.append(parse(text, contract))
                except FilterError:
                    continue

    gather()
    assert (len(made.rows), len(made.filters), len(made.contracted)) == (messages, filters // 2, filters // 2)
    return made


def _stored(message: Row, offset: int) -> Row:
    """The message as a broker has it: at this offset, with no checksum or the right one."""
    payload: Any = message.fields["payload"]
    checksum = None if message.fields["checksum"] is None or payload is None else zlib.crc32(payload)
    state = int(State(message.fields["state"]))
    return Row({**message.fields, "offset": offset, "checksum": checksum, "state": state}, message.headers)
