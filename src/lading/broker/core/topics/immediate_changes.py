"""Changes of the topology that are made at once, for callers that may block all others: tests, and short changes."""

from __future__ import annotations

from ..change import complete
from ..settings import TopicSettings
from ..topology import Stream, Topic
from .namespace import Namespace
from .topology_changes import TopologyChanges


class ImmediateChanges:
    """``TopologyChanges`` whose methods return when the change is done. Raises Refusal for an impossible change."""

    def __init__(self, namespace: Namespace, changes: TopologyChanges) -> None:
        self._namespace = namespace
        self._changes = changes

    def create_stream(self, ident: int | None, name: str, *, now_us: int) -> Stream:
        """Create a stream; without an id it takes the lowest that is free."""
        return complete(self._changes.create_stream(ident, name, now_us=now_us))

    def ensure_stream(self, name: str, *, now_us: int) -> Stream:
        """Return the stream of this name, created if missing."""
        return complete(self._changes.ensure_stream(name, now_us=now_us))

    def delete_stream(self, ident: int | str) -> None:
        """Delete a stream with its topics and all their messages."""
        complete(self._changes.delete_stream(self._namespace.stream(ident)))

    def create_topic(
        self,
        stream_ident: int | str,
        ident: int | None,
        name: str,
        partitions_count: int,
        *,
        now_us: int,
        settings: TopicSettings | None = None,
    ) -> Topic:
        """Create a topic with empty partitions; without an id it takes the lowest that is free."""
        stream = self._namespace.stream(stream_ident)
        settings = settings or TopicSettings()
        return complete(
            self._changes.create_topic(stream, ident, name, partitions_count, now_us=now_us, settings=settings)
        )

    def create_topic_in_stream(self, stream: str, name: str, partitions_count: int, now_us: int) -> Topic:
        """Create a topic with empty partitions in a stream, which is created if missing."""
        found = self.ensure_stream(stream, now_us=now_us)
        return self.create_topic(found.id, None, name, partitions_count, now_us=now_us)

    def alter_topic(self, topic: Topic, settings: TopicSettings) -> None:
        """Change the settings of a topic."""
        complete(self._changes.alter_topic(topic, settings))

    def delete_topic(self, stream_ident: int | str, topic_ident: int | str) -> None:
        """Delete a topic with its groups, positions and messages."""
        complete(self._changes.delete_topic(self._namespace.topic(stream_ident, topic_ident)))

    def add_partitions(self, topic: Topic, count: int) -> None:
        """Add this many empty partitions; groups rebalance."""
        complete(self._changes.add_partitions(topic, count))

    def delete_partitions(self, topic: Topic, count: int) -> None:
        """Delete the partitions with the highest numbers and their messages; groups rebalance."""
        complete(self._changes.delete_partitions(topic, count))
