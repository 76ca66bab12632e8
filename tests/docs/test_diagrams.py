"""The diagrams of state machines in the documentation say what the tables of the code say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from lading.broker.kafka import group, transactional_producer

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "kafka-groups.md"


def diagram(transitions: Mapping[Any, frozenset[Any]], first: StrEnum) -> str:
    """The text of a diagram, as it is to stand in the page."""
    edges = sorted(f"    {before} --> {after}" for before, afters in transitions.items() for after in afters)
    return "\n".join(["stateDiagram-v2", f"    [*] --> {first}", *edges])


def test_groups_and_producers() -> None:
    found = re.findall(r"```mermaid\n(.*?)\n```", PAGE.read_text(), re.DOTALL)
    assert found == [
        diagram(group.TRANSITIONS, group.GroupState.EMPTY),
        diagram(transactional_producer.TRANSITIONS, transactional_producer.ProducerState.EMPTY),
    ]
