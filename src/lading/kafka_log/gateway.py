"""A gateway: a broker whose store is a Kafka cluster, with the threads that talk to it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final, cast
from uuid import uuid4

from ..broker.broker import Broker, BrokerParts
from ..broker.core.settings import BrokerSettings
from ..log.access_file import AccessFile
from ..log.catalog import FILE_NAME
from ..log.directory import DataDirectory
from ..log.disk import UnsyncedDisk
from ..log.group_commit import WriteOnly
from ..log.interface import PartitionLog
from ..model.errors import LadingError, Reason, Refusal
from ..runtime.clock import Dates, now_us
from ..transports.open import open_transport
from .access import GatewayAccessFile
from .appender import ClusterAppender
from .catalog_records import GatewayRecord
from .changes import ClusterChanges
from .cluster import ClusterTopics, ClusterView
from .delayed_messages import ClusterDelayedMessages
from .ends import AwaitedPlaces, Ends, EndsWatcher, Places
from .group_members import GroupMembers
from .group_offsets import GroupOffsets
from .iggy_groups import ClusterIggyGroups
from .loader import Loader
from .log import ClusterLog, StretchCache
from .positions import ClusterPositions
from .producers import Producers
from .refusals import GatewayCatalog, RefusedRenames
from .share_channels import ClusterChannels
from .state_records import StateTable
from .states import ClusterStates, StateThread

if TYPE_CHECKING:
    from ..transports.kafka.transport import KafkaTransport

LOG: Final = logging.getLogger("lading.store")
CACHE_BYTES_MAX: Final = 128 << 20
LOADERS_COUNT: Final = 4
PRODUCERS_COUNT: Final = 16
"""Each waits for the acknowledgement of one partition, about 10 ms; with 32 none was faster on two cores."""
OFFSETS_COUNT: Final = 8
"""Each waits for the response to one group, whose coordinator acknowledges a commit in about as long as a message."""
MEMBERS_COUNT: Final = 2
LOOK_S: Final = 1.0
"""The interval of checks of the cluster's topics, for changes by others."""
RETRIES: Final = 1000
"""Retries of a request after a broken connection or if the cluster asks for it; ``PATIENCE_S`` may end them."""
SILENCE_S: Final = 3.0
"""A broker that takes longer to respond counts as unreachable, and is connected to again."""
PATIENCE_S: Final = 20.0
"""How long a request is repeated: Kafka takes about 10 seconds to give a dead broker's partitions to others."""
END_S: Final = 10.0
GOODBYE_S: Final = 1.0
BEAT_S: Final = 5.0
"""The interval of the records of a running gateway."""


class ClusterStore:
    """The storage of a gateway: durable data is in the cluster; the directory ``data`` ends with the process."""

    def __init__(self, data: Path, cluster: ClusterTopics) -> None:
        disk = UnsyncedDisk()
        self.dates = Dates()
        self.commit = WriteOnly()
        self.directory = DataDirectory(data, disk)
        self.access_file: AccessFile = GatewayAccessFile(data, disk, cluster)
        self.catalog = GatewayCatalog(data / FILE_NAME, disk, self.dates)

    def open_log(self, path: Path, topic_id: bytes, first_epoch: int, now_us: int) -> PartitionLog:
        """Raise: topics come from the cluster with their logs."""
        raise NotImplementedError(f"{path}: a gateway opens no log")


@contextmanager
def open_gateway(url: str, data: Path, settings: BrokerSettings) -> Iterator[Broker]:
    """Yield the broker of a gateway to the cluster ``url``, in the thread of the running event loop.

    Raises SettingError and Unreachable if the cluster cannot be used.
    """
    loop = asyncio.get_running_loop()
    gateway = Gateway(url, data, settings, loop.call_soon_threadsafe)
    try:
        gateway.start()
        yield gateway.broker
    finally:
        gateway.close()


class Gateway:
    """The broker and its threads."""

    def __init__(
        self, url: str, data: Path, settings: BrokerSettings, call_soon_threadsafe: Callable[..., object]
    ) -> None:
        self._url = url
        self._is_open = True
        self._call_soon = call_soon_threadsafe
        topics_transport = self._open_transport()
        self._cluster = ClusterTopics(topics_transport)
        self._cluster.open()
        self._cache = StretchCache(CACHE_BYTES_MAX)
        self._loader = Loader(self._open_transport, self._post, LOADERS_COUNT, PATIENCE_S)
        self._producers = Producers(self._open_transport, self._post, PRODUCERS_COUNT, PATIENCE_S)
        self._members = GroupMembers(self._open_members_transport, self._post, MEMBERS_COUNT)
        self._offsets = GroupOffsets(
            self._open_transport, self._post, OFFSETS_COUNT, PATIENCE_S, self._members.find_identity
        )
        store = ClusterStore(data, self._cluster)
        self._access_file = store.access_file
        self.broker = Broker(
            store, settings, now_us=now_us(),
            parts=BrokerParts(
                lambda commit, counters, bytes_max: ClusterAppender(commit, counters, bytes_max, self._producers),
                ClusterChanges, RefusedRenames,
                lambda catalog, counters, flush_us, call_later: ClusterPositions(
                    catalog, counters, flush_us, call_later, self._offsets
                ),
                ClusterIggyGroups,
                ClusterChannels,
                ClusterDelayedMessages,
                ClusterStates,
            ),
        )  # fmt: skip
        store.catalog.is_guarded = True
        changes = self.broker.changes
        assert isinstance(changes, ClusterChanges), "made above"
        self._changes = changes
        awaited = AwaitedPlaces()
        table = StateTable()
        self._states = StateThread(self._open_transport, self._post, table)
        states = self.broker.states
        assert isinstance(states, ClusterStates), "made above"
        states.thread = self._states

        def attach(log: ClusterLog) -> None:
            log.attach(self._loader, self._cache, awaited.note)
            log.show_states(table)

        changes.bind(self._cluster, attach, self._look_and_wait)
        channels = self.broker.channels
        assert isinstance(channels, ClusterChannels), "made above"
        self._channels = channels
        channels.bind(self._cluster, self._open_transport, self._post, self._look_and_wait)
        groups = self.broker.groups
        assert isinstance(groups, ClusterIggyGroups), "made above"
        self._groups = groups
        groups.bind(self._cluster, self._members, self._look_and_wait)
        changes.on_taken_over = self._take_records
        # it checks again by itself, and reports the result
        watching = self._open_transport()
        watching.limit_patience(SILENCE_S, SILENCE_S)
        self._ends = EndsWatcher(watching, self._list_places, awaited, self._take_ends, self._post)
        self._problem: str | None = None
        """Why the last look at the topics failed, or None."""
        self.broker.find_store_problem = lambda: self._ends.problem or self._problem
        self._id = str(uuid4())
        self._beat_at_s = 0.0
        self.broker.siblings.list_others = lambda: changes.records.list_gateways(self._id)
        self._stopped = Event()
        self._looking = Lock()
        self._looker = Thread(target=self._look_on, name="lading-topics", daemon=True)

    def start(self) -> None:
        """Load the present state of the cluster, then follow its changes."""
        # before the first message can be read
        self._states.load()
        self._changes.take_over(self._cluster.look({}), now_us())
        self._states.start()
        self._ends.start()
        self._looker.start()

    def close(self) -> None:
        """Send the accepted messages, then end."""
        self._stopped.set()
        self._ends.close()
        if self._beat_at_s:
            # a cluster that does not respond must not delay the end: lookups forget this gateway after a while
            deleting = Thread(target=self._delete_record, name="lading-goodbye", daemon=True)
            deleting.start()
            deleting.join(GOODBYE_S)
        self.broker.appender.flush()
        self._channels.end_readers(END_S)
        self._members.close(END_S)
        if self._states.is_alive():
            self._states.close(END_S)
        self._producers.close(END_S)
        self._offsets.close(END_S)
        self._is_open = False
        self._loader.close()
        self.broker.stop()

    def _open_transport(self) -> KafkaTransport:
        transport = cast("KafkaTransport", open_transport(self._url, retries=RETRIES))
        transport.limit_patience(SILENCE_S, PATIENCE_S)
        return transport

    def _post(self, callback: Callable[[], None]) -> None:
        if self._is_open:
            self._call_soon(callback)

    # -- topics

    def _look_and_wait(self) -> None:
        """Read the cluster in a worker thread; return after the event loop has loaded the result."""
        done = Event()

        def take() -> None:
            try:
                self._changes.take_over(view, now_us())
            finally:
                done.set()

        # an older view must not be applied after a newer one, whose new topics it would remove
        with self._looking:
            view = self._cluster.look(self._changes.known)
            self._post(take)
        if not done.wait(END_S):
            raise Refusal(Reason.STOPPING, "the gateway did not take the change over in time; look whether it was made")

    def _look_on(self) -> None:
        while not self._stopped.wait(LOOK_S):
            try:
                self._beat()
                self._look_and_wait()
                self._problem = None
            except Exception as error:
                if self._problem is None:
                    fault = None if isinstance(error, LadingError) else error
                    LOG.warning("the topics of the cluster cannot be looked at: %s", error, exc_info=fault)
                self._problem = f"the topics of the Kafka cluster cannot be looked at: {error}"

    def _open_members_transport(self) -> KafkaTransport:
        transport = self._open_transport()
        # a coordinator that does not respond must not delay the other members of the thread for longer
        transport.limit_patience(SILENCE_S, SILENCE_S)
        return transport

    def _take_records(self, view: ClusterView) -> None:
        access = view.records.access
        if access is not None and access.serial > self._access_file.serial:
            self._access_file.serial = access.serial
            self.broker.access.take_over(access.table)
        for topic in self.broker.topology.topics():
            self._groups.take_over(topic, view.records.groups.get(topic.flat_name, {}))
            records = view.records
            self._channels.take_over(
                topic, records.channels.get(topic.flat_name, {}), records.queues.get(topic.flat_name)
            )

    def _beat(self) -> None:
        """Write the record of this running gateway, with its address for clients of NSQ."""
        address = self.broker.siblings.find_own()
        if address is not None and not self._stopped.is_set() and time.monotonic() >= self._beat_at_s:
            self._cluster.put_gateway(GatewayRecord(self._id, address, now_us()))
            self._beat_at_s = time.monotonic() + BEAT_S

    def _delete_record(self) -> None:
        with suppress(LadingError):
            self._cluster.delete_gateway(self._id)

    # -- ends

    def _list_places(self) -> Places:
        """Return the known ends; in the thread of the watcher."""
        return {place: log.cluster_end for place, log in self._changes.logs.items()}

    def _take_ends(self, higher: Ends, lower: Ends, firsts: Ends) -> None:
        logs = self._changes.logs
        for place, first in firsts.items():
            if (log := logs.get(place)) is not None:
                log.first_offset = max(log.first_offset, first.offset)
        for place, end in higher.items():
            if (log := logs.get(place)) is not None:
                log.advance(end.offset)
        for place, end in lower.items():
            if (log := logs.get(place)) is not None:
                LOG.warning("topic %r, partition %d ends at offset %d now: it was cut back", *place, end.offset)
                log.cut_back(end.offset)
