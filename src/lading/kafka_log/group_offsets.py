"""Threads that commit, look up and delete the offsets of Kafka groups, as a member if the gateway has one.

A group belongs to one thread, so that its commits stay in order. Offsets of a group that wait during its last request
are sent together, and for each partition only the last one.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from ..model.errors import LadingError
from ..transports.kafka.groups import NO_MEMBER, delete_positions, fetch_positions, reset_group
from .cluster_threads import ClusterThread, ThreadGroup

if TYPE_CHECKING:
    from ..transports.kafka.transport import KafkaTransport

LOG: Final = logging.getLogger("lading.store")
Place = tuple[str, int]
Stored = Callable[[LadingError | None], None]
FindIdentity = Callable[[str], tuple[str, int]]
"""Returns id and epoch of a member of a group, or ``NO_MEMBER`` if the gateway has none."""
Fetched = Callable[[int | None, LadingError | None], None]
"""Takes the next offset, None if the group has none."""


@dataclass(slots=True)
class _GroupWork:
    """The waiting work of one group: first changes, then lookups."""

    changes: dict[Place, int | None] = field(default_factory=dict)
    """The next offset of each partition, None to delete it."""
    stored: dict[Place, list[Stored]] = field(default_factory=dict)
    fetched: dict[Place, list[Fetched]] = field(default_factory=dict)


class GroupOffsets:
    """The threads. Methods are for the event loop, which gets every callback."""

    def __init__(
        self,
        open_transport: Callable[[], KafkaTransport],
        post: Callable[[Callable[[], None]], None],
        threads_count: int,
        find_identity: FindIdentity = lambda group: NO_MEMBER,
    ) -> None:
        self._threads = ThreadGroup(partial(_OffsetThread, open_transport, post, find_identity), threads_count)

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
        find_identity: FindIdentity,
    ) -> None:
        super().__init__("lading-offsets", open_transport, post)
        self._find_identity = find_identity
        self._waiting: OrderedDict[str, _GroupWork] = OrderedDict()

    def change(self, group: str, place: Place, offset: int | None, stored: Stored) -> None:
        with self._changed:
            work = self._waiting.setdefault(group, _GroupWork())
            work.changes[place] = offset
            work.stored.setdefault(place, []).append(stored)
            self._changed.notify()

    def fetch(self, group: str, place: Place, fetched: Fetched) -> None:
        with self._changed:
            self._waiting.setdefault(group, _GroupWork()).fetched.setdefault(place, []).append(fetched)
            self._changed.notify()

    def work(self, transport: KafkaTransport) -> None:
        while (taken := self._take()) is not None:
            group, work = taken
            self._make_changes(transport, group, work)
            if work.fetched:
                self._look_up(transport, group, work)

    def _take(self) -> tuple[str, _GroupWork] | None:
        """Return the work of the group that has waited longest, or None at the end."""
        with self._changed:
            while not self._waiting:
                if self._is_ending:
                    return None
                self._changed.wait()
            return self._waiting.popitem(last=False)

    def _make_changes(self, transport: KafkaTransport, group: str, work: _GroupWork) -> None:
        stores = [(*place, offset) for place, offset in work.changes.items() if offset is not None]
        deletions = [place for place, offset in work.changes.items() if offset is None]
        if stores:
            error = self._attempt(group, lambda: self._store(transport, group, stores))
            self._report(work, [(topic, number) for topic, number, _ in stores], error)
        if deletions:
            error = self._attempt(group, lambda: delete_positions(transport.cluster, group, deletions))
            self._report(work, deletions, error)

    def _store(self, transport: KafkaTransport, group: str, stores: list[tuple[str, int, int]]) -> None:
        reset_group(transport.cluster, group, stores, partial(self._find_identity, group))

    def _look_up(self, transport: KafkaTransport, group: str, work: _GroupWork) -> None:
        found: dict[Place, int] = {}

        def look_up() -> None:
            found.update(fetch_positions(transport.cluster, group, list(work.fetched)))

        error = self._attempt(group, look_up)
        for place, callbacks in work.fetched.items():
            for callback in callbacks:
                self._post(partial(callback, found.get(place), error))

    def _report(self, work: _GroupWork, places: list[Place], error: LadingError | None) -> None:
        for place in places:
            for callback in work.stored[place]:
                self._post(partial(callback, error))

    @staticmethod
    def _attempt(group: str, request: Callable[[], None]) -> LadingError | None:
        try:
            request()
        except LadingError as error:
            return error
        except Exception as error:
            LOG.exception("offsets of Kafka group %r: a request to the cluster failed", group)
            return LadingError(repr(error))
        return None
