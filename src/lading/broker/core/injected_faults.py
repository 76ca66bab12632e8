"""Faults that a test asks for: refused appends, a full disk. Only in a broker that is started for it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...log.disk import Data, RealDisk, RealFile
from ...model.errors import Reason, Refusal

if TYPE_CHECKING:
    from .append import Appender
    from .pending_append import Append


class InjectedFaults:
    """What of a broker is to fail; used from its thread."""

    def __init__(self) -> None:
        self.appends_to_refuse = 0
        """So many appends from now on are refused: an append is a request, or what one has for one partition."""
        self.disk_is_full = False
        """Whether files of the log take no bytes; positions and topics are in the catalog, which still does."""
        self.disk = FillableDisk(self)

    def install(self, appender: Appender) -> None:
        """Have what ``appender`` is asked for refused as it is told to be; before endpoints start."""
        append = appender.append

        def append_unless_refused(*arguments: Any) -> Append:
            if self.appends_to_refuse:
                self.appends_to_refuse -= 1
                # the reason after which clients of every protocol send again
                raise Refusal(Reason.DISK_FULL, f"a test has this refused; {self.appends_to_refuse} more will be")
            return append(*arguments)

        # whoever appends asks the appender for its method each time, and gets this one
        appender.append = append_unless_refused  # type: ignore[method-assign,assignment]


class FillableDisk(RealDisk):
    """The disk of this machine, full when its owner says so."""

    def __init__(self, faults: InjectedFaults) -> None:
        self._faults = faults

    def open(self, path: Path, *, write: bool = False) -> FillableFile:
        return FillableFile(path, os.O_RDWR | os.O_CREAT if write else os.O_RDONLY, self._faults)


class FillableFile(RealFile):
    """A file that takes no bytes while its disk is full."""

    __slots__ = ("_faults",)

    def __init__(self, path: Path, flags: int, faults: InjectedFaults) -> None:
        self._faults = faults
        super().__init__(path, flags)

    def write(self, data: Data, at: int) -> None:
        if self._faults.disk_is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        super().write(data, at)
