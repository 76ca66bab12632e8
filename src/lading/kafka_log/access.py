"""Users and rights of all gateways: one record of the catalog topic, in place of the file of a data directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..log.access_file import AccessFile
from ..log.disk import Disk
from ..model.errors import LadingError, Reason, Refusal
from .catalog_records import AccessTableRecord

if TYPE_CHECKING:
    from .cluster import ClusterTopics


class GatewayAccessFile(AccessFile):
    """The record, in place of the file. Workers save it; the event loop applies it."""

    def __init__(self, data: Path, disk: Disk, cluster: ClusterTopics) -> None:
        super().__init__(data, disk)
        self._cluster = cluster

    def load(self, recorded_serial: int = 0) -> dict[str, Any] | None:
        """Return the document, or None before the first change."""
        record = self._cluster.read_access()
        if record is None:
            return None
        self.serial = record.serial
        return dict(record.document)

    def save(self, document: Mapping[str, Any]) -> None:
        """Replace the document in the cluster. Raises Refusal if another gateway did so, or the cluster does not
        respond.
        """
        record = AccessTableRecord(self.serial + 1, document)
        try:
            self._cluster.put_access(record)
        except Refusal:
            raise
        except LadingError as error:
            raise Refusal(
                Reason.STOPPING, f"users and rights: the Kafka cluster does not respond ({error}); look, and try again"
            ) from None
        self.serial = record.serial

    def mark(self) -> None:
        """Do nothing: the record contains its number."""

    def find_difference(self, document: Mapping[str, Any]) -> str | None:
        """Return None: other gateways may change the record at any time, and changes are applied."""
        return None
