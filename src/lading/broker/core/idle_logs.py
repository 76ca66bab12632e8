"""Logs that rest: beyond a number of open files, those that were not written to for longest close theirs."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from ...log.interface import KeptLog
from .component import Component
from .topology import Partition

FILES_EACH: Final = 5
"""Segment, watermark, states, and maps of one or two segments that are read."""


class IdleLogs(Component):
    """Logs with open files in which nothing is under way, the one that was used last at the end."""

    def __init__(self, files_max: int) -> None:
        self._logs_max = max(files_max // FILES_EACH, 1)
        self._idle: OrderedDict[int, KeptLog] = OrderedDict()

    def add(self, log: KeptLog, busy: int) -> None:
        """Note that nothing is under way in ``log`` any more; ``busy`` others hold files open too."""
        self._idle[id(log)] = log
        self._idle.move_to_end(id(log))
        while self._idle and len(self._idle) + busy > self._logs_max:
            # one that was written to since refuses, and is added again when it is done
            self._idle.popitem(last=False)[1].rest()

    def on_partition_deleted(self, partition: Partition) -> None:
        """Let go of a log that is going to be closed."""
        self._idle.pop(id(partition.log), None)
