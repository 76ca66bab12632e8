"""Queues as streaming sources: a child process takes messages into a spool, and Spark reads the spool (design.md
Spark).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from ...model.errors import LadingError, RemoteError, SettingError
from ...spool.spool_log import SpoolLocked, lock_spool
from ...transports.open import is_queue
from .options import SourceOptions

LOG: Final = logging.getLogger("lading.spark")
START_S: Final = 60.0
STOP_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Spooled(SourceOptions):
    """Options of a stream whose ``from_`` is the spool; ``queue`` fills it, with ``queue_options``."""

    queue: str = ""
    queue_options: Mapping[str, Any] = field(default_factory=dict)


def refuse_queue(options: SourceOptions) -> None:
    """Raise SettingError for a queue: a batch read of it would take its messages, and could not be repeated."""
    if is_queue(options.from_):
        raise SettingError(
            f"{options.from_} is a queue: reading consumes its messages, so that a batch read could not be repeated. "
            f"Copy them into a directory and read that: lading spool {options.from_} {options.topic} DIRECTORY "
            '(spark.readStream does so by itself, with .option("spool", DIRECTORY))'
        )


def resolve_spool(options: SourceOptions) -> SourceOptions:
    """Return the options that a stream is read with: for a queue those of its spool.

    Raises SettingError if a queue has no spool.
    """
    if not is_queue(options.from_):
        if options.spool is not None or options.spool_keep_s is not None:
            raise SettingError(f"spool is for queues; {options.from_} is read directly")
        return options
    if options.spool is None:
        raise SettingError(
            f"{options.from_} is a queue: messages are removed from it when they are read, and Spark reads them again "
            'after a failure. Name a directory that all executors reach: .option("spool", "/path/to/spool")'
        )
    known = {name: getattr(options, name) for name in SourceOptions.__dataclass_fields__}
    return Spooled(
        **{**known, "from_": options.spool, "transport": {}},
        queue=options.from_,
        queue_options=dict(options.transport),
    )


class SpoolProcess:
    """The child process that fills a spool, on the driver. It ends with ``stop``, or when this process does."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._is_taken = False
        """Whether another process filled the spool when this one looked last."""
        self._done = 0

    def start(self, options: SourceOptions) -> None:
        """Start the process if the options are a queue's; return when it has taken the waiting messages (10 s at most).

        To be called before every look into the spool: a process that has ended is started again, with a line in the
        log. If another process holds the spool, ours is started again when that one has ended. Raises RemoteError with
        the process's own error if it fails.
        """
        if not isinstance(options, Spooled):
            return
        if self._child is not None:
            code = self._child.poll()
            if code is None or (self._is_taken and _is_locked(Path(options.from_))):
                return
            if not self._is_taken:
                LOG.warning("the spool process of %s ended (%s); starting another", options.queue, _describe_exit(code))
            self.stop()
        more = dict(options.queue_options)
        if options.spool_keep_s is not None:
            more["keep_s"] = options.spool_keep_s
        # options have secrets, and arguments are seen by everybody on the machine
        command = [
            sys.executable,
            "-m",
            "lading.spool",
            options.queue,
            options.topic,
            options.channel,
            options.from_,
            "-",
        ]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        atexit.register(self.stop)
        self._done = 0
        assert self._child.stdin is not None and self._child.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(json.dumps(more).encode() + b"\n")
            self._child.stdin.flush()
        event = _first_line(self._child.stdout)
        if event.get("event") not in ("caught_up", "taken"):
            self.stop()
            raise RemoteError(
                f"cannot consume from {options.queue}: {event.get('message', 'the spool process exited')}"
            )
        self._is_taken = event["event"] == "taken"
        if self._is_taken:
            LOG.info("%s", event["message"])

    def release(self, offset: int) -> None:
        """Let the spool delete everything before this offset once it is old: the stream has consumed it."""
        if self._child is not None and self._child.stdin is not None and offset > self._done:
            self._done = offset
            with contextlib.suppress(OSError):
                self._child.stdin.write(b"%d\n" % offset)
                self._child.stdin.flush()

    def stop(self) -> None:
        """End it: what it took is in the spool, what it did not finish is the queue's."""
        child, self._child = self._child, None
        if child is None:
            return
        atexit.unregister(self.stop)
        assert child.stdin is not None and child.stdout is not None
        child.stdin.close()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        child.stdout.close()


def _is_locked(spool: Path) -> bool:
    try:
        with lock_spool(spool):
            return False
    except SpoolLocked:
        return True


def _describe_exit(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def _first_line(stream: IO[bytes]) -> dict[str, Any]:
    """Return the first line of the child's output as JSON. Raises LadingError if it does not come in time."""
    lines: list[bytes] = []
    reader = threading.Thread(target=lambda: lines.append(stream.readline()), daemon=True)
    reader.start()
    reader.join(START_S)
    if not lines:
        raise LadingError(f"spool process did not report ready within {START_S:.0f} s")
    found: dict[str, Any] = json.loads(lines[0] or b"{}")
    return found
