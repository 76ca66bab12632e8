"""The source that the console reads: a server, cluster or directory, with a connection for each working thread."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from ..model.errors import LocalError
from ..payloads.form import JSON_FORM
from ..registry.payload_form import parse_payload_form
from ..transports.group_administration import GroupAdministration
from ..transports.interface import Marking, TopicMeta, Transport
from ..transports.lading.transport import LadingTransport
from ..transports.open import holds_secret, is_queue, open_transport, without_options
from ..transports.transport_pool import TransportPool
from .damage import MetDamage
from .masks import NO_MASKS, Masks, TopicMask


class ConsoleSource:
    """A URL or directory; transports of it are lent to one thread at a time.

    Raises LocalError for a queue, which has no offsets, and SettingError for an address that cannot be one. An
    unreachable server is noticed by the first request only: it may start later.
    """

    def __init__(
        self,
        url: str,
        registry: str | None = None,
        login: Mapping[str, Any] | None = None,
        masks: Masks = NO_MASKS,
    ) -> None:
        """``registry`` is the URL of the registry that has the schemas of payloads.

        ``login`` has the options of connections that log in as a user, in place of this process itself.
        """
        if is_queue(url):
            raise LocalError(
                f"{url} is a queue: reading consumes its messages, and there is nothing to browse; name the admin "
                "endpoint of a broker (lading://host:port), a Kafka cluster, an Iggy server or a data directory"
            )
        self.url = url
        self.form: Final = (
            JSON_FORM if registry is None else parse_payload_form({"format": "schema", "registry": registry})
        )
        """The form in which payloads that name their schema are read."""
        self.met_damage: Final = MetDamage()
        self.masks: Final = masks
        self.login: Final[Mapping[str, Any]] = login or {}
        self._transports: Final = TransportPool(url, partial(open_transport, url, **self.login))
        with self.lend() as transport:
            self.can_mark: Final = isinstance(transport, Marking)
            """Whether message states can be listed and set."""
            self.has_groups: Final = isinstance(transport, GroupAdministration)
            """Whether it can list the groups that read its topics, with their lag."""
            self.is_broker: Final = isinstance(transport, LadingTransport)
            """Whether it is the admin endpoint of a broker, which also reports damage."""

    @property
    def shown(self) -> str:
        """The URL without its options, for people."""
        return without_options(self.url)

    @property
    def is_writable(self) -> bool:
        """Whether there is a server to send messages to."""
        return "://" in self.url and urlsplit(self.url).scheme.lower() != "file"

    @property
    def holds_secret(self) -> bool:
        """Whether the console logs in on behalf of any visitor, so that visitors need a key."""
        return holds_secret(self.url)

    def mask_of(self, meta: TopicMeta) -> TopicMask:
        """Return what is masked in the messages of a topic."""
        return self.masks.of_meta(meta.stream, meta.topic, meta.name)

    def lend(self) -> AbstractContextManager[Transport]:
        """Lend a transport to this thread; after an error of the server the next one gets a new connection."""
        return self._transports.lend()

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._transports.close()
