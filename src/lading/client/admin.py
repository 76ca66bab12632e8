"""Admin: creates, lists and deletes topics of any server."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from ..model.errors import SettingError
from ..transports.interface import ExtendingTransport, TopicMeta, Transport
from .arguments import open_for


class Admin:
    """Topics of the server at ``url`` (any scheme), or of an open transport (which it closes).

    ``options`` go to the transport. One thread may use it at a time, and only the process that created it.
    """

    def __init__(self, url: str | Transport | None = None, **options: Any) -> None:
        self.transport: Transport = open_for(Admin, url, options)

    def create_topic(self, name: str, partitions: int = 1, *, extended: bool = False) -> TopicMeta:
        """Create a topic. Raises Refusal TOPIC_NAME_EXISTS if it exists.

        ``extended`` requires a topic whose messages have NSQ's ext headers, over ``nsq://`` or ``lading://``; without
        it a topic over ``nsq://`` is extended if the server has such topics. Raises SettingError over other protocols.
        """
        if extended:
            return self._require_extending(name).create_extended_topic(name, partitions)
        return self.transport.create_topic(name, partitions)

    def extend_topic(self, name: str) -> None:
        """Make a plain NSQ topic an extended one, permanently, over ``nsq://`` (an nsqlookupd's URL) or ``lading://``.

        Its messages stay readable. Raises SettingError over other protocols.
        """
        self._require_extending(name).extend_topic(name)

    def _require_extending(self, name: str) -> ExtendingTransport:
        if not isinstance(self.transport, ExtendingTransport):
            raise SettingError(
                f"topic {name!r} cannot be extended at {self.transport.url}: extended topics are NSQ's; use nsq:// or "
                "lading://"
            )
        return self.transport

    def list_topics(self) -> list[TopicMeta]:
        """Return all topics with their partitions."""
        return self.transport.topics()

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its messages. Raises SettingError for a protocol over which Lading's client cannot delete
        topics.
        """
        delete = getattr(self.transport, "delete_topic", None)
        if delete is None:
            raise SettingError(f"topic {name!r} cannot be deleted at {self.transport.url}; use the server's own tools")
        delete(name)

    def empty_topic(self, name: str) -> int:
        """Delete all messages of a topic and keep it; return how many offsets they had.

        Readers of all protocols continue with messages sent later. Raises SettingError over any protocol but
        ``lading://``.
        """
        empty = getattr(self.transport, "empty_topic", None)
        if empty is None:
            raise SettingError(f"topic {name!r} cannot be emptied at {self.transport.url}; use the server's own tools")
        return int(empty(name))

    def close(self) -> None:
        """Close the connection. Further calls do nothing."""
        self.transport.close()

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
