"""Message states over Iggy's TCP protocol, by commands of Lading's own: what sets them waits for the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dialects.iggy.classic.state_commands import SetStates, SetStatesWhere, StatesProgress
from ..base.services import Services
from ..http_shared.states import StateRequests, StatesDocument

if TYPE_CHECKING:
    from ...broker.core.topology import Partition
    from .clients import Client


class StateSetter:
    """Sets states as the HTTP endpoints do."""

    def __init__(self, services: Services) -> None:
        self._broker = services.broker
        self._requests = StateRequests(services)

    async def set(self, command: SetStates | SetStatesWhere, client: Client) -> StatesProgress:
        """Return the progress when it is on disk; raise Refusal or FilterError."""

        def find() -> Partition:
            return self._broker.topology.topic(command.stream, command.topic).partition(command.partition_id - 1)

        reason = command.reason or None
        if isinstance(command, SetStates):
            progress = await self._requests.set_ranges(find, command.ranges, command.state, reason, command.dry_run)
        else:
            document = StatesDocument(
                state=command.state.word, where=command.where, first=command.first, end=command.end,
                reason=reason, dry_run=command.dry_run,
            )  # fmt: skip
            progress = await self._requests.set(find, document, client.user or client.address.rpartition(":")[0])
        return StatesProgress(progress.seen, progress.matched, progress.changed, progress.first, progress.end)
