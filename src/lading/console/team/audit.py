"""Audit lines: the user, address, object and result of each change, as JSON in a file and in the log.

The log may leave lines out if its reader is slow; the file does not. A change begins only when all earlier lines are in
the file, so that no change is made without its line.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ...model.errors import LocalError
from ...runtime.log_lines import origin
from ...runtime.private_files import open_private

log = logging.getLogger(__name__)

TEXT_MAX: Final = 200
"""Characters of each value in a line, and the number of texts that are kept of a list."""
OMITTED: Final = frozenset({"message"})
"""Fields with the content of messages, which lines leave out."""


class AuditFile:
    """Appends lines to a file of its owner alone. Any thread may use it."""

    def __init__(
        self, file: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC), broker: str | None = None
    ) -> None:
        """``broker`` is the name of the source in a file of brokers, which each line then has.

        Raises LocalError if the file cannot be written.
        """
        self._file = file
        self._broker = broker
        self._now = now
        self._waiting: list[bytes] = []
        self._lock = threading.Lock()
        self.require()

    def require(self) -> None:
        """Write the waiting lines. Raises LocalError if the file cannot be written: then no change may begin."""
        with self._lock:
            try:
                self._write()
            except OSError as error:
                raise LocalError(
                    f"audit file {self._file}: cannot be written: {error.strerror}; nothing is changed until it can"
                ) from None

    def note(
        self,
        action: str,
        user: str,
        host: str,
        result: str,
        given: Mapping[str, Any] | None = None,
        done: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a line with the arguments ``given``, without contents of messages, and the numbers of ``done``."""
        document: dict[str, Any] = {
            "time": self._now().isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "user": user[:TEXT_MAX], "from": host, "action": action, "result": result[: 2 * TEXT_MAX],
        }  # fmt: skip
        if self._broker is not None:
            document["broker"] = self._broker
        if given:
            document["given"] = {
                name[:TEXT_MAX]: _shorten_value(one) for name, one in given.items() if name not in OMITTED
            }
        if done:
            document["done"] = {name: one for name, one in done.items() if isinstance(one, int)}
        line = json.dumps(document, default=str)
        log.info("%s", line, extra=origin("console", host))
        with self._lock:
            self._waiting.append(line.encode() + b"\n")
            try:
                self._write()
            except OSError as error:
                log.error("audit file %s: cannot be written: %s; %d lines wait", self._file, error.strerror,
                          len(self._waiting))  # fmt: skip

    def _write(self) -> None:
        # opened each time: another program may have moved it away
        with open(open_private(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC), "ab") as file:
            if self._waiting:
                file.write(b"".join(self._waiting))
                file.flush()
                os.fsync(file.fileno())
        self._waiting.clear()


def _shorten_value(value: Any) -> Any:
    if isinstance(value, str):
        return value[:TEXT_MAX]
    if isinstance(value, list):
        return [_shorten_value(one) for one in value[:TEXT_MAX]]
    return value if isinstance(value, int | float | None) else str(value)[:TEXT_MAX]
