"""Features that this store does not have, by name: a request is refused with a sentence, so that nothing is half
stored.

Everything durable that is not a message is written to the catalog. A gateway's own catalog is a file that ends with it;
so kinds of records that are not in the cluster yet are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from sqlite3 import Connection
from typing import Final, NoReturn

from ..broker.core.change import Change
from ..broker.core.topics.renames import Renames
from ..broker.core.topology import Stream, Topic
from ..log.catalog import Catalog
from ..log.catalog_schema import CatalogRecordKind
from ..model.errors import Reason, Refusal

_BROKER: Final = "use a broker with a data directory for it"
REFUSED: Final[Mapping[str, str]] = {
    "groups": (
        "groups of native clients, and filters of groups, are not supported on a store of kafka://; join a group of "
        f"Iggy, read partitions by offset, or {_BROKER}"
    ),
    "operated groups": (
        "a group of Iggy cannot be deleted by lading group delete on a store of kafka://; delete it with an Iggy client"
    ),
    "transactions": f"transactions of native writers are not supported on a store of kafka://; {_BROKER}",
    "dead letters": f"dead letters are not supported on a store of kafka://; {_BROKER}",
    "purge": "messages cannot be deleted through a store of kafka://; set retention.ms on the Kafka topic",
    "settings": "settings of a topic cannot be changed through a store of kafka://; change its configs in Kafka",
    "partitions": "partitions cannot be deleted on a store of kafka://; Kafka cannot either",
    "renames": "streams and topics cannot be renamed on a store of kafka://; Kafka cannot rename a topic",
    "producers": f"producer ids are not supported on a store of kafka://; {_BROKER}",
    "schemas": f"the schema registry is not supported on a store of kafka://; {_BROKER}",
    "channels": "positions of channels in files are not supported on a store of kafka://; share groups have them",
    "channel settings": (
        "channels cannot skip, be ordered, or be moved to an offset through a store of kafka://; use Kafka's tools for "
        "the share group nsq.TOPIC.CHANNEL"
    ),
    "paused queues": (
        "a paused topic that has channels cannot be emptied on a store of kafka://: it keeps no messages apart from "
        "theirs; empty its channels"
    ),
    "channel filters": f"tags, filters and samples are not supported on a store of kafka://; {_BROKER}",
    "ordered channels": f"channels in order, or of one partition, are not supported on a store of kafka://; {_BROKER}",
    "ephemeral channels": "ephemeral channels are not supported on a store of kafka://; use a name without #ephemeral",
}
"""Refused features, with the sentence that clients and the log get."""

KEPT: Final = frozenset(
    {CatalogRecordKind.STREAM, CatalogRecordKind.TOPIC, CatalogRecordKind.ACCESS, CatalogRecordKind.WRITER}
)
"""Kinds of records that a gateway's own catalog may have: all but the last are in the cluster too, and the last matters
only while the gateway runs.
"""
_REFUSED_KINDS: Final[Mapping[CatalogRecordKind, str]] = {
    CatalogRecordKind.GROUP: "groups",
    CatalogRecordKind.COORDINATED_GROUP: "groups",
    CatalogRecordKind.GROUP_FILTER: "groups",
    CatalogRecordKind.POSITION: "channels",
    CatalogRecordKind.WAITING_POSITION: "channels",
    CatalogRecordKind.TRANSACTION: "transactions",
    CatalogRecordKind.COMMIT_KEY: "transactions",
    CatalogRecordKind.MARKING: "dead letters",
    CatalogRecordKind.MARKING_PROGRESS: "dead letters",
    CatalogRecordKind.PRODUCER: "producers",
    CatalogRecordKind.SCHEMA: "schemas",
    CatalogRecordKind.KAFKA_CONFIG: "settings",
}


def refuse(feature: str) -> NoReturn:
    """Raise the Refusal of a key of ``REFUSED``."""
    raise Refusal(Reason.FEATURE_UNAVAILABLE, REFUSED[feature])


class GatewayCatalog(Catalog):
    """The catalog of one gateway, for as long as it runs: it refuses records that are not in the cluster."""

    is_guarded = False
    """Whether the components have created their tables, so that every write from now on is a client's."""

    def write(self, *kinds: CatalogRecordKind) -> AbstractContextManager[Connection]:
        """Open a transaction for kinds that are kept; Refusal for others."""
        for kind in kinds if self.is_guarded else ():
            if kind not in KEPT:
                refuse(_REFUSED_KINDS[kind])
        return super().write(*kinds)


class RefusedRenames(Renames):
    """Renames of streams and topics, which this store refuses."""

    def rename_topic(self, topic: Topic, name: str) -> Change[None]:
        """Refuse."""
        refuse("renames")

    def rename_stream(self, stream: Stream, name: str) -> Change[None]:
        """Refuse."""
        refuse("renames")
