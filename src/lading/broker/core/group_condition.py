"""The condition of a group's filter: which messages of a topic its members get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ...dialects import registry
from ...model.errors import FilterError, MalformedMessage
from ...model.run import Run
from ...model.scan_request import ScanRequest

if TYPE_CHECKING:
    from ...filter.filter import Filter
    from ...payloads.form import PayloadForm
    from .topology import Topic


OPERANDS_MAX: Final = 128
"""A channel's messages are looked at on the event loop, a page at a time."""


class GroupCondition:
    """A condition: its text, and its filter for each form of payloads."""

    def __init__(self, text: str, choose_form: Callable[[Topic], PayloadForm]) -> None:
        """Raises FilterError if ``text`` is invalid; this takes a while, and may run in any thread.

        ``choose_form`` returns how payloads of a topic are read.
        """
        # a broker without filters starts without the parser
        from ...filter.parse import parse
        from ...filter.tree import Field, operands

        self.of_json: Filter = parse(text)
        """The filter of topics whose payloads name no schemas."""
        self._choose_form = choose_form
        nodes = operands(self.of_json.tree)
        if len(nodes) > OPERANDS_MAX:
            raise FilterError(f"a group's filter has {len(nodes)} names and constants; the limit is {OPERANDS_MAX}")
        if any(isinstance(node, Field) and node.name == "state" for node in nodes):
            raise FilterError(
                "a group's filter cannot use 'state': members get available messages alone; leave the state out"
            )

    @property
    def text(self) -> str:
        """The condition as it is written."""
        return self.of_json.text

    def find_filter(self, topic: Topic) -> Filter:
        """Return the filter of a topic's messages."""
        return replace(self.of_json, form=self._choose_form(topic)) if topic.settings.validate_schemas else self.of_json


def select_offsets(run: Run, first: int, end: int, condition: Filter) -> NDArray[np.int64] | None:
    """Return the offsets from ``first`` to ``end`` of the messages that a filter selects, rising.

    None if the messages cannot be decoded: a filter keeps nothing from a reader that it could not look into. Callable
    from any thread.
    """
    request = ScanRequest(first, end, condition.fields | {"offset"}, condition.header_keys)
    try:
        selected = [
            part.columns["offset"].to_numpy()[condition.selects(part).to_numpy(zero_copy_only=False)]
            for part in registry.decode(run, request)
        ]
    except MalformedMessage:
        return None
    return np.concatenate(selected) if selected else np.empty(0, np.int64)
