"""The gate of a TCP endpoint: it accepts clients, and closes those that are idle or have to make room for others.

One for each endpoint; its connections report what they wait for (``stage``) and it does the rest: places, deadlines,
log lines and metrics. Threads: event loop only.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from ..base.admission import AdmittedConnection, Places
from ..base.deadlines import DeadlineWatch, Stage, WatchedConnection, timeouts_of
from ..base.peer import TLS_HELLO, is_tls_hello
from ..base.services import Services

if TYPE_CHECKING:
    from ...settings.settings import ConnectionSettings, Settings

log = logging.getLogger(__name__)

RESTED_S: Final = 60.0
"""How long a connection must be idle before it makes room for a new one."""

_SECTION: Final = "connections."

SENTENCES: Final = {
    Stage.FIRST: "its first request is not whole after {:g} s (setting {})",
    Stage.PARTIAL: "a request is not whole after {:g} s (setting {})",
    Stage.IDLE: "it was idle for {:g} s (setting {})",
    Stage.BLOCKED: "it has read nothing of its responses for {:g} s (setting {})",
}


class GuardedConnection(WatchedConnection, AdmittedConnection, Protocol):
    """A connection as its gate sees it."""

    def origin(self) -> dict[str, str]:
        """Return what a logger takes as ``extra`` for a line about this connection."""

    def unread(self) -> memoryview:
        """Return the received bytes that are not handled yet."""

    def abort(self) -> None:
        """Close the connection at once."""


class Gate:
    """The connections of one endpoint, and its limits on them."""

    def __init__(
        self,
        services: Services,
        name: str,
        timeouts_ms: Mapping[Stage, tuple[int, str]] | None = None,
    ) -> None:
        """``name``: an endpoint, or a listener, whose ``connections_max`` counts.

        ``timeouts_ms``: deadlines that are not those of ``connections.*``, each with the setting that has it.
        """
        self._metrics = services.metrics
        self._name = name
        settings = services.settings
        own = timeouts_ms or {}
        self._own = own
        self._keys = {stage: f"{_SECTION}{stage.value}_ms" for stage in Stage}
        self._keys |= {stage: key for stage, (_, key) in own.items()}
        self._timeouts_s = self._merge(settings.connections)
        connections_max = settings.endpoints.section(name).connections_max
        self._places = Places(connections_max, settings.connections.peer_share, services.connection_budget)
        self.watch = watch = DeadlineWatch(self._timeouts_s)
        services.metrics.busy_s[name] = lambda: watch.longest_busy_s
        services.limits_callbacks.append(self._set_limits)

    def _merge(self, settings: ConnectionSettings) -> dict[Stage, float]:
        found = timeouts_of(settings)
        for stage, (timeout_ms, key) in self._own.items():
            # one that is another deadline of all endpoints follows that
            name = key.removeprefix(_SECTION)
            found[stage] = (timeout_ms if name == key else getattr(settings, name)) / 1_000
        return found

    def _set_limits(self, settings: Settings) -> None:
        connections = settings.connections
        self._timeouts_s = self._merge(connections)
        self._places.set_limits(settings.endpoints.section(self._name).connections_max, connections.peer_share)
        self.watch.set_timeouts(self._timeouts_s)

    def admit(self, connection: GuardedConnection, host: str) -> bool:
        """Admit a connection. Return False if all places are taken, and no idle connection can be closed for it."""
        if not self._places.admit(connection, host):
            self.count_dropped("connections_max")
            return False
        self.watch.add(connection)
        self._metrics.connections[self._name] = len(self._places)
        return True

    def settle(self, connection: GuardedConnection) -> None:
        """Note that the first request of a connection is whole."""
        self._places.settle(connection)

    def leave(self, connection: GuardedConnection) -> None:
        """Take back the place of a connection that is closed."""
        self._places.leave(connection)
        self.watch.remove(connection)
        self._metrics.connections[self._name] = len(self._places)

    def has_rested(self, connection: GuardedConnection) -> bool:
        """Return whether a connection has been idle for long enough to make room for another one."""
        return connection.stage() is Stage.IDLE and self.watch.measure_unchanged_s(connection) >= RESTED_S

    def expire(self, connection: GuardedConnection, stage: Stage) -> None:
        """Close a connection that was at ``stage`` for too long, with a line in the log."""
        self.count_dropped(stage.value)
        why = SENTENCES[stage].format(self._timeouts_s[stage], self._keys[stage])
        if stage is Stage.FIRST and is_tls_hello(connection.unread()):
            why = TLS_HELLO
        log.info("closing the connection: %s", why, extra=connection.origin())
        connection.abort()

    def evict(self, connection: GuardedConnection) -> None:
        """Close a connection whose place, or memory, another one needs."""
        self.count_dropped("evicted")
        log.info("closing the connection: another one needs its place", extra=connection.origin())
        connection.abort()

    def count_dropped(self, reason: str, count: int = 1) -> None:
        """Count a closed connection whose reason could not be reported in the protocol."""
        self._metrics.dropped.values[self._name, reason] += count


class Guarded(GuardedConnection):
    """A connection, as the gate sees it."""

    gate: Gate

    def release_memory(self) -> None:
        """Drop the received bytes, and release their memory."""

    def stop_reading(self) -> None:
        """Read nothing more."""

    def give_way(self) -> None:
        """Return the memory of a half request and end the connection, or the memory of completed requests."""
        is_half = self.stage() in (Stage.FIRST, Stage.PARTIAL)
        if is_half:
            self.stop_reading()
            self.evict()
        if is_half or not self.unread():
            self.release_memory()

    def expire(self, stage: Stage) -> None:
        self.gate.expire(self, stage)

    def evict(self) -> None:
        self.gate.evict(self)

    def is_evictable(self) -> bool:
        return self.gate.has_rested(self)
