"""Topics are created with logs that a worker has made: nobody else waits for their files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...broker.core.namespace import PreparedLogs
    from ...broker.core.topology import Topic
    from .services import Services


async def create_with_prepared_logs(
    services: Services, partitions_count: int, create: Callable[[PreparedLogs], Topic]
) -> Topic:
    """Make the logs of a new topic in a worker, then call ``create`` with them, on the loop.

    Returns its topic. Raises what it raises, after the logs were removed: somebody else may have created it meanwhile.
    """
    broker, workers = services.broker, services.workers
    loop = asyncio.get_running_loop()
    prepared = await loop.run_in_executor(workers, broker.prepare_logs, partitions_count)
    try:
        return create(prepared)
    except BaseException:
        await loop.run_in_executor(workers, broker.discard, prepared)
        raise
