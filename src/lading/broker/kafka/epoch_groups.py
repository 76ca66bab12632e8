"""Groups whose members send epochs (KIP-848 and KIP-932): their row in the catalog, and the size of subscriptions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Protocol

from ...log.catalog import Catalog
from ...log.catalog_rows import GroupRow
from ...log.catalog_schema import CatalogRecordKind
from ...model.errors import Reason, Refusal
from ..core.settings import BrokerSettings
from .group import PROTOCOL_BYTES

EPOCHS_AT_ONCE: Final = 1_000
"""Epochs that the catalog reserves for a group at once: it is not written for each of them."""
GROUP_CONFIG_KIND: Final = 32
"""The kind of resource that configs of groups have."""


class EpochGroup(Protocol):
    """A group whose members send an epoch."""

    name: str
    epoch: int
    reserved_epoch: int


def reserve_epochs(catalog: Catalog, protocol: str, group: EpochGroup) -> None:
    """Store the group in the catalog, with an epoch above its own."""
    if group.epoch >= group.reserved_epoch:
        reserved = group.epoch + EPOCHS_AT_ONCE
        catalog.put_group(GroupRow(protocol, b"", group.name, reserved), CatalogRecordKind.COORDINATED_GROUP)
        group.reserved_epoch = reserved


def measure_subscription(names: Collection[str], texts: Iterable[str | None]) -> int:
    """Return the memory of a subscription and of the other names that a member sends."""
    return PROTOCOL_BYTES * (1 + len(names)) + sum(map(len, names)) + sum(len(text or "") for text in texts)


def require_room(
    settings: BrokerSettings, kind: str, group: str, size_bytes: int, former_bytes: int, held_bytes: int
) -> None:
    """Raise Refusal if a subscription is too large for one member, or with those that all groups of the kind hold.

    ``former_bytes`` are those that it replaces.
    """
    if size_bytes > settings.member_metadata_bytes_max:
        raise Refusal(
            Reason.REQUEST_TOO_LARGE,
            f"a member of group {group!r} subscribes with {size_bytes} bytes; the limit is "
            f"{settings.member_metadata_bytes_max} (setting broker.member_metadata_bytes_max)",
        )
    if held_bytes + size_bytes - former_bytes > settings.groups_metadata_bytes_max:
        raise Refusal(
            Reason.GROUP_FULL,
            f"the subscriptions of all {kind} groups have {held_bytes} bytes; "
            f"{settings.groups_metadata_bytes_max} are the most (setting broker.groups_metadata_bytes_max)",
        )
