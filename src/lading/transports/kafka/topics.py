"""Topics of a Kafka cluster as they are now: partitions, offsets, and ids, which change if a topic is created anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ...dialects.kafka import errors
from ...dialects.kafka.commands import EARLIEST, LATEST
from ...model.errors import RemoteError
from ...model.names import DEFAULT_STREAM
from ...model.protocol import MessageBound
from ..interface import PartitionMeta, TopicMeta
from ..topics import require_topic_name, unknown_topic_error
from .cluster import KafkaCluster, raise_for_code
from .offsets import list_offsets

MESSAGE_BYTES_MAX: Final = "max.message.bytes"
COMPRESSION_TYPE: Final = "compression.type"
TOPIC_RESOURCE: Final = 2


class KafkaTopics:
    """Look-ups in one cluster; ``ids`` are those of the topics that were seen, None if the cluster has none."""

    def __init__(self, cluster: KafkaCluster, url: str) -> None:
        self._cluster = cluster
        self._url = url
        self.ids: dict[str, bytes | None] = {}

    def list_topics(self, wanted: Callable[[str], bool] | None = None) -> list[TopicMeta]:
        """Return all topics but Kafka's own, or those whose name is wanted; offsets are requested only for these."""
        rows = [row for row in self._cluster.metadata(None).topics if not row.is_internal and not row.error_code]
        return self.describe([row for row in rows if wanted is None or wanted(row.name)])

    def look_up(self, name: str) -> TopicMeta:
        """Return the topic as it is now. Raises LocalError with near names if it does not exist."""
        require_topic_name(name)

        def ask() -> Any:
            (row,) = self._cluster.metadata([name]).topics
            if row.error_code in (errors.UNKNOWN_TOPIC, errors.INVALID_TOPIC):
                return None
            raise_for_code(f"topic {name!r}", row.error_code)
            return row

        row = self._cluster.retry(ask)
        if row is None:
            self._cluster.forget(name)
            known = [row.name for row in self._cluster.metadata(None).topics if not row.is_internal]
            raise unknown_topic_error(name, known, self._url)
        return self.describe([row])[0]

    def message_bound(self, name: str) -> MessageBound | None:
        """Return the present message bound of the topic; None if the cluster does not report it to this login."""
        wanted = [MESSAGE_BYTES_MAX, COMPRESSION_TYPE]
        resource = {"resource_type": TOPIC_RESOURCE, "resource_name": name, "configuration_keys": wanted}

        def ask() -> Any:
            answer = self._cluster.ask(
                "DescribeConfigs", resources=[resource], include_synonyms=False, include_documentation=False
            )
            (row,) = answer.results
            # not every broker knows a topic that was just created
            raise_for_code(f"the configuration of topic {name!r}", row.error_code, row.error_message)
            return row.configs

        try:
            values = {one.name: one.value for one in self._cluster.retry(ask)}
        except RemoteError as error:
            if error.code is None:
                raise
            # no right to it, or a server without such a request: it then refuses messages that are too large when they
            # are sent
            return None
        if values.get(MESSAGE_BYTES_MAX) is None:
            return None
        is_compressed = values.get(COMPRESSION_TYPE) != "uncompressed"
        return MessageBound(int(values[MESSAGE_BYTES_MAX]), MESSAGE_BYTES_MAX, is_compressed)

    def forget(self, name: str) -> None:
        """Forget leaders and id of a topic that was deleted."""
        self._cluster.forget(name)
        self.ids.pop(name, None)

    def describe(self, rows: Sequence[Any]) -> list[TopicMeta]:
        """Return the topics of a metadata response, with first and last stable offset by partition."""
        places = [(row.name, part.partition_index) for row in rows for part in row.partitions]
        first, end = list_offsets(self._cluster, places, EARLIEST), list_offsets(self._cluster, places, LATEST)
        metas = []
        for row in rows:
            topic_id = getattr(row, "topic_id", None)
            self.ids[row.name] = None if topic_id is None else topic_id.bytes
            partitions = tuple(
                PartitionMeta(number, first[row.name, number].offset, *end[row.name, number])
                for number in sorted(part.partition_index for part in row.partitions)
            )
            metas.append(TopicMeta(DEFAULT_STREAM, row.name, row.name, self.ids[row.name], partitions))
        return metas
