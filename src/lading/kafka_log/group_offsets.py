"""Threads that commit, look up and delete the offsets of Kafka groups, as a member if the gateway has one.

A group belongs to one thread, so that its commits stay in order. Offsets of a group that wait during its last request
are sent together, and for each partition only the last one. A request that the cluster does not take now, as without a
coordinator, is tried again later, and other groups are served meanwhile.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from ..dialects.kafka.errors import RETRIABLE
from ..model.errors import LadingError
from ..transports.kafka.groups import JOINS_AGAIN, NO_MEMBER, delete_positions, fetch_positions, reset_group
from .attempts import ClusterAttempts, StalledWork
from .cluster_threads import ClusterThread, ThreadGroup

if TYPE_CHECKING:
    from ..transports.kafka.transport import KafkaTransport

LOG: Final = logging.getLogger("lading.store")
PASSING_CODES: Final = RETRIABLE | frozenset(JOINS_AGAIN)
"""Codes after which a request is tried again; a member may have another epoch by then."""
Place = tuple[str, int]
Stored = Callable[[LadingError | None], None]
FindIdentity = Callable[[str], tuple[str, int]]
"""Returns id and epoch of a member of a group, or ``NO_MEMBER`` if the gateway has none."""
Fetched = Callable[[int | None, LadingError | None], None]
"""Takes the next offset, None if the group has none."""


@dataclass(slots=True)
class _GroupWork:
    """The waiting work of one group: first changes, then lookups."""

    group: str
    changes: dict[Place, int | None] = field(default_factory=dict)
    """The next offset of each partition, None to delete it."""
    stored: dict[Place, list[Stored]] = field(default_factory=dict)
    fetched: dict[Place, list[Fetched]] = field(default_factory=dict)
    attempts: ClusterAttempts = field(default_factory=ClusterAttempts)


class GroupOffsets:
    """The threads. Methods are for the event loop, which gets every callback."""

    def __init__(
        self,
        open_transport: Callable[[], KafkaTransport],
        post: Callable[[Callable[[], None]], None],
        threads_count: int,
        patience_s: float,
        find_identity: FindIdentity = lambda group: NO_MEMBER,
    ) -> None:
        """``patience_s`` is how long a request is tried again that the cluster does not take."""
        start = partial(_OffsetThread, open_transport, post, patience_s, find_identity)
        self._threads = ThreadGroup(start, threads_count)

    def store(self, group: str, place: Place, offset: int, stored: Stored) -> None:
        """Commit the next offset of a partition."""
        self._threads.choose(group).change(group, place, offset, stored)

    def delete(self, group: str, place: Place, stored: Stored) -> None:
        """Delete the offset of a partition, if it has one."""
        self._threads.choose(group).change(group, place, None, stored)

    def fetch(self, group: str, place: Place, fetched: Fetched) -> None:
        """Look up the next offset of a partition, after earlier changes are committed."""
        self._threads.choose(group).fetch(group, place, fetched)

    def close(self, timeout_s: float) -> None:
        """Commit waiting offsets, and end the threads; one that still waits for the cluster ends with the process."""
        self._threads.close(timeout_s)


class _OffsetThread(ClusterThread):
    def __init__(
        self,
        open_transport: Callable[[], KafkaTransport],
        post: Callable[[Callable[[], None]], None],
        patience_s: float,
        find_identity: FindIdentity,
    ) -> None:
        super().__init__("lading-offsets", open_transport, post)
        self._find_identity = find_identity
        self._waiting: OrderedDict[str, _GroupWork] = OrderedDict()
        self._stalled: StalledWork[str, _GroupWork] = StalledWork(patience_s, PASSING_CODES)
        """Work that is tried again; nothing else of its group is done before it."""

    def change(self, group: str, place: Place, offset: int | None, stored: Stored) -> None:
        with self._changed:
            work = self._waiting.setdefault(group, _GroupWork(group))
            work.changes[place] = offset
            work.stored.setdefault(place, []).append(stored)
            self._changed.notify()

    def fetch(self, group: str, place: Place, fetched: Fetched) -> None:
        with self._changed:
            self._waiting.setdefault(group, _GroupWork(group)).fetched.setdefault(place, []).append(fetched)
            self._changed.notify()

    def work(self, transport: KafkaTransport) -> None:
        # this thread tries again by itself, and serves other groups meanwhile
        transport.limit_patience(transport.cluster.timeout_s, 0.0)
        while (work := self._take()) is not None:
            self._make_requests(transport, work)

    def _take(self) -> _GroupWork | None:
        """Return work whose turn has come again, or that of the group that has waited longest; None at the end."""
        with self._changed:
            while True:
                due = self._stalled.take_due()
                if due is not None:
                    return due
                group = next((one for one in self._waiting if one not in self._stalled), None)
                if group is not None:
                    return self._waiting.pop(group)
                if self._is_ending and not self._stalled:
                    return None
                self._changed.wait(self._stalled.measure_wait_s())

    def _make_requests(self, transport: KafkaTransport, work: _GroupWork) -> None:
        """Make the requests that are left, in order, up to one that is tried again later."""
        cluster, group = transport.cluster, work.group
        stores = [(*place, offset) for place, offset in work.changes.items() if offset is not None]
        deletions = [place for place, offset in work.changes.items() if offset is None]
        if stores:
            store = partial(reset_group, cluster, group, stores, partial(self._find_identity, group))
            places = [(topic, number) for topic, number, _ in stores]
            if not self._attempt(work, store, partial(self._report, work, places)):
                return
        if deletions:
            delete = partial(delete_positions, cluster, group, deletions)
            if not self._attempt(work, delete, partial(self._report, work, deletions)):
                return
        if work.fetched:
            found: dict[Place, int] = {}
            self._attempt(
                work,
                lambda: found.update(fetch_positions(cluster, group, list(work.fetched))),
                partial(self._report_lookups, work, found),
            )

    def _attempt(
        self, work: _GroupWork, request: Callable[[], None], report: Callable[[LadingError | None], None]
    ) -> bool:
        """Make a request and report its outcome, unless it is tried again later; return whether it was reported."""
        error: LadingError | None = None
        try:
            request()
            work.attempts.begin_anew()
        except Exception as failure:
            with self._changed:
                if self._stalled.put_off(work.group, work, failure):
                    return False
            if isinstance(failure, LadingError):
                error = failure
            else:
                LOG.exception("offsets of Kafka group %r: a request to the cluster failed", work.group)
                error = LadingError(repr(failure))
        report(error)
        return True

    def _report(self, work: _GroupWork, places: list[Place], error: LadingError | None) -> None:
        for place in places:
            del work.changes[place]
            for callback in work.stored.pop(place):
                self._post(partial(callback, error))

    def _report_lookups(self, work: _GroupWork, found: dict[Place, int], error: LadingError | None) -> None:
        for place, callbacks in work.fetched.items():
            for callback in callbacks:
                self._post(partial(callback, found.get(place), error))
