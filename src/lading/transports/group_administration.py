"""Operations of a transport on consumer groups besides membership: list, describe, move and delete them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from .interface import Transport


@runtime_checkable
class GroupAdministration(Transport, Protocol):
    """A transport whose server reports its consumer groups, moves their positions and deletes them."""

    def groups(self) -> list[dict[str, Any]]:
        """Return a row of each group: ``protocol``, ``group``, ``state``, the number of ``members``, ``lag``."""
        ...

    def group(self, protocol: str, name: str) -> dict[str, Any]:
        """Return one group with the names of its ``members``, and its ``partitions``.

        A partition has ``topic``, ``partition``, ``position``, ``end`` and ``lag``. Raises Refusal GROUP_NOT_FOUND.
        """
        ...

    def describe_groups(self, limit: int) -> list[dict[str, Any]]:
        """Return at most ``limit`` groups, each as ``group`` does."""
        ...

    def reset_group(self, protocol: str, name: str, positions: Sequence[tuple[str, int, int]]) -> None:
        """Set a group's positions to (topic, partition, next offset). Raises Refusal GROUP_NOT_EMPTY while it has
        members.
        """
        ...

    def delete_group(self, protocol: str, name: str) -> None:
        """Delete a group with its positions. Raises Refusal GROUP_NOT_EMPTY while it has members."""
        ...
