"""Recovery of topics at a start, if directories and catalog contradict each other.

The catalog may be older than the directories (a restored copy, a damaged or deleted write-ahead log) or empty. A topic
that only has a directory is added as its ``topic.json`` describes it, never ignored: otherwise a new topic could get
its name next to the old data.
"""

from __future__ import annotations

from ....log.catalog import Catalog
from ....log.catalog_rows import TopicRow
from ....log.directory import DESCRIPTION, DataDirectory, TopicDescription
from ....model.errors import CorruptLog, NewerFormat


class FoundTopics:
    """Compares catalog and directories; its decisions are listed in ``notes``, for the operator."""

    def __init__(self, catalog: Catalog, directory: DataDirectory, notes: list[str], now_us: int) -> None:
        self._now_us = now_us
        self._catalog = catalog
        self._directory = directory
        self._notes = notes
        self._described: dict[bytes, TopicDescription | None] = {}

    def reconcile(self, row: TopicRow) -> TopicRow:
        """Return a listed topic with the partitions that are in its directory; finish or undo interrupted deletes."""
        described = self._describe(row.uuid)
        there, is_interrupted = self._directory.list_partitions(row.uuid)
        count = self._partitions_count(row, described, there)
        if is_interrupted:
            self._directory.settle_partitions(row.uuid, count)
            there = self._directory.partitions(row.uuid)
        if count != row.partitions:
            self._notes.append(
                f"topic {row.name!r}: the catalog says {row.partitions} partitions, its directory "
                f"{self._directory.path(row.uuid)} has {count}; {count} it is"
            )
            epoch = max(row.next_epoch, described.next_epoch if described else 1)
            self._catalog.resize_topic(row.uuid, count, epoch)
            row = row._replace(partitions=count, next_epoch=epoch)
        return self._with_partitions(row, there)

    def describe_unlisted(self, uuid: bytes) -> TopicDescription | None:
        """Return the description in a directory that is not listed; None, after removal, if an interrupted create left
        it.

        Raises CorruptLog if it holds messages and no description.
        """
        path = self._directory.path(uuid)
        described = self._directory.take_description(uuid)
        if described is None:
            if not self._directory.remove_if_empty(uuid):
                raise CorruptLog(
                    f"{path} holds messages of a topic that is not in the catalog and has no {DESCRIPTION}; put that "
                    "file back, or move the directory away"
                )
            return None
        if described.uuid != uuid:
            raise CorruptLog(f"{path / DESCRIPTION} is that of topic {described.uuid.hex()}; put the right one there")
        self._described[uuid] = described
        return described

    def adopt(self, described: TopicDescription, stream_id: int, topic_id: int) -> TopicRow:
        """Add a topic that only its directory knows to the catalog; return its row."""
        row = TopicRow(
            described.uuid,
            stream_id,
            topic_id,
            described.topic,
            described.created_us,
            described.partitions,
            described.next_epoch,
            dict(described.settings),
        )
        count = self._partitions_count(row, described, self._directory.partitions(row.uuid))
        self._directory.settle_partitions(row.uuid, count)
        row = self._with_partitions(row._replace(partitions=count), self._directory.partitions(row.uuid))
        self._notes.append(
            f"topic {described.name!r} was not in the catalog and was added from {self._directory.path(row.uuid)} "
            f"with {count} partitions; groups, positions and commit keys that the catalog had of it are lost"
        )
        return row

    def differs(self, description: TopicDescription) -> bool:
        """Return whether ``topic.json`` must be written again.

        Its old content for a listed topic is noted for the operator.
        """
        before = self._described.get(description.uuid)
        if before is not None and before != description:
            changed = [
                name for name in before.document() if before.document()[name] != description.document().get(name)
            ]
            self._notes.append(
                f"topic {description.name!r}: {self._directory.path(description.uuid) / DESCRIPTION} disagrees with "
                f"the catalog about {', '.join(changed)} and is rewritten"
            )
        return before != description

    def _describe(self, uuid: bytes) -> TopicDescription | None:
        """Return the description in a listed topic's file; if that cannot be read, note it and write it anew."""
        described = None
        try:
            described = self._directory.take_description(uuid)
        except NewerFormat:
            raise
        except CorruptLog as error:
            self._notes.append(f"{error}; it is rewritten from the catalog")
        self._described[uuid] = described
        return described

    def _partitions_count(self, row: TopicRow, described: TopicDescription | None, there: set[int]) -> int:
        """Return the number of partitions in the catalog, or a higher one that directories and description show."""
        count = row.partitions
        later = 0 if described is None else described.partitions
        if later < count and described is not None and there.isdisjoint(range(later, count)):
            # partitions deleted meanwhile: an interrupted delete leaves renamed directories, and is undone if the
            # catalog counts them
            deleting = self._directory.partitions_marked_deleted(row.uuid)
            return count if deleting.intersection(range(later, count)) else later
        while count in there and (count < later or self._directory.holds_messages(row.uuid, count)):
            count += 1
        return count

    def _with_partitions(self, row: TopicRow, there: set[int]) -> TopicRow:
        """Return the row if all its partitions exist; logs that begin anew in empty directories get a later epoch."""
        missing = set(range(row.partitions)) - there
        if missing:
            number = min(missing)
            path = self._directory.partition(row.uuid, number)
            raise CorruptLog(
                f"partition {number} of topic {row.name!r} has no directory {path}; restore it, or create an "
                "empty one in its place to continue without its messages"
            )
        empty = self._directory.empty_partitions(row.uuid, row.partitions)
        if not empty:
            return row
        paths = ", ".join(str(self._directory.partition(row.uuid, number)) for number in empty)
        self._notes.append(f"topic {row.name!r}: {paths} held no file; a new log begins, what was there is lost")
        # an epoch must never be used twice: seconds since 1970 are above any count
        return row._replace(next_epoch=max(row.next_epoch, self._now_us // 1_000_000))
