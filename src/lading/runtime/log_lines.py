"""Log lines of a process that serves: each with time, level, endpoint and peer, repeats counted, never waited for.

Lines are put into a bounded queue that a thread writes to standard error. A pipe that is full holds up that thread
alone; lines that find no room in the queue are counted, and the count is written when the reader catches up.
"""

from __future__ import annotations

import json
import logging
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Any, Final, Literal

from ..model.printable import escape_unseen, escape_unseen_in_lines

LogFormat = Literal["text", "json"]

LINES_MAX: Final = 10_000
"""At most this many lines wait until standard error is read; further ones are counted."""
REPEAT_WINDOW_S: Final = 10.0
"""A line that comes again within this time is counted; the count is written at the end of it, with the time of then, so
that lines are in the order of their times."""
LOOK_S: Final = 1.0
"""Interval at which the ends of these windows are checked."""
LIKE_MAX: Final = 100
"""At most this many different lines of one template, as with different numbers, are written in a window; further ones
are only counted."""
WINDOWS_MAX: Final = 4_096
STALLED_S: Final = 1.0
"""How long the end of the process waits for a reader of standard error that takes nothing."""
FLUSH_S: Final = 5.0
"""How long it waits for a reader that takes some lines, but not all."""

RECENT_MAX: Final = 1_000
"""Number of newest lines that are kept for callers who ask the running process for them."""
RECENT_CHARACTERS_MAX: Final = 4_000
"""Characters of each recent line: tracebacks are long."""

_STDERR: Final = 2


def origin(endpoint: str, peer: str = "") -> dict[str, str]:
    """Return the ``extra`` of a log call: the endpoint that the line is about, and the address of its client."""
    return {"endpoint": endpoint, "peer": peer}


@dataclass(slots=True)
class _LineWindow:
    """The count of a line since it was last written, and the end of the window in which it is only counted."""

    record: logging.LogRecord
    until_s: float
    written: int = 1
    counted: int = 0


class RepeatCounter:
    """Decides which lines are written, and which are only counted."""

    def __init__(self) -> None:
        self._lines: dict[object, _LineWindow] = {}
        self._templates: dict[object, _LineWindow] = {}

    def is_new(self, record: logging.LogRecord, message: str, now_s: float) -> bool:
        """Return whether a line is written; otherwise it is counted, with the peer that it came from last."""
        place = (record.name, record.levelno, getattr(record, "endpoint", ""))
        line = self._find_window(self._lines, (*place, message), record, now_s)
        if line.written + line.counted > 1:
            return self._count(line, record)
        template = self._find_window(self._templates, (*place, record.msg), record, now_s)
        return template.written <= LIKE_MAX or self._count(template, record)

    @property
    def is_empty(self) -> bool:
        """Whether no window is open."""
        return not (self._lines or self._templates)

    def take_due(self, now_s: float) -> Iterator[tuple[logging.LogRecord, int]]:
        """Return the lines whose window is over at ``now_s``, with the number of times that they were counted.

        Their attribute ``since`` is the time of the line that was written.
        """
        for windows in (self._lines, self._templates):
            for key in [key for key, window in windows.items() if window.until_s <= now_s]:
                window = windows.pop(key)
                if window.counted:
                    yield window.record, window.counted

    @staticmethod
    def _find_window(
        windows: dict[object, _LineWindow], key: object, record: logging.LogRecord, now_s: float
    ) -> _LineWindow:
        window = windows.get(key)
        if window is not None and (window.until_s > now_s or window.counted):
            window.written += 1
            return window
        # not the record itself: its exception would keep everything alive that a failed request had in hand
        kept = logging.makeLogRecord(
            {**record.__dict__, "msg": record.getMessage(), "args": (), "exc_info": None, "since": record.created}
        )
        window = _LineWindow(kept, now_s + REPEAT_WINDOW_S)
        if len(windows) < WINDOWS_MAX:
            windows[key] = window
        return window

    @staticmethod
    def _count(window: _LineWindow, record: logging.LogRecord) -> bool:
        window.written -= 1
        window.counted += 1
        window.record.peer = getattr(record, "peer", "")
        return False


def format_text(record: logging.LogRecord, repeated: int = 0) -> str:
    """Return a record as ``time LEVEL endpoint peer message``, with ``-`` for a missing endpoint or peer.

    Control characters are escaped: text from a client cannot pass for another line, move a cursor or reorder text.
    """
    endpoint, peer = getattr(record, "endpoint", ""), getattr(record, "peer", "")
    message = escape_unseen(record.getMessage())
    if repeated:
        message += f" (repeated {repeated} times since {_write_time(record.__dict__['since'])})"
    line = f"{_write_time(record.created)} {record.levelname} {endpoint or '-'} {peer or '-'} {message}"
    traceback = _write_traceback(record)
    return f"{line}\n{escape_unseen_in_lines(traceback)}" if traceback and not repeated else line


def format_json(record: logging.LogRecord, repeated: int = 0) -> str:
    """Return a record as one JSON object: the fields of ``format_text``, ``repeated``, ``since`` and ``traceback``."""
    fields: dict[str, Any] = {
        "time": _write_time(record.created),
        "level": record.levelname,
        "endpoint": getattr(record, "endpoint", "") or None,
        "peer": getattr(record, "peer", "") or None,
        "message": record.getMessage(),
    }
    if repeated:
        fields["repeated"] = repeated
        fields["since"] = _write_time(record.__dict__["since"])
    elif traceback := _write_traceback(record):
        fields["traceback"] = traceback
    return json.dumps(fields)


_FORMATS: Final[dict[LogFormat, Callable[[logging.LogRecord, int], str]]] = {"text": format_text, "json": format_json}


def _write_time(created_s: float) -> str:
    return datetime.fromtimestamp(created_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _write_traceback(record: logging.LogRecord) -> str:
    return logging.Formatter().formatException(record.exc_info) if record.exc_info else ""


class LineWriter(logging.Handler):
    """Writes log lines to a file descriptor from a thread of its own; callers that log never wait for it."""

    def __init__(self, log_format: LogFormat = "text", *, handle: int = _STDERR) -> None:
        super().__init__()
        self._format = _FORMATS[log_format]
        self._handle = handle
        self._repeats = RepeatCounter()
        # puts of a SimpleQueue never wait, in signal handlers and finalizers too; it is bounded here
        self._queue: SimpleQueue[str | None] = SimpleQueue()
        self._recent: deque[str] = deque(maxlen=RECENT_MAX)
        self._ending = False
        self._written = 0
        self.lost = 0
        """The number of lines since the start that did not fit into the queue."""
        self._lost_told = 0
        self._thread = threading.Thread(target=self._write_on, name="lading-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line, or count it. Called with the lock of the handler held, as all handlers are."""
        try:
            if self._repeats.is_new(record, record.getMessage(), time.monotonic()):
                self._put(self._format(record, 0))
        except Exception:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Count a line that cannot be formatted: the library would write its traceback, and wait for that."""
        self.lost += 1

    def close(self) -> None:
        """Write the queued lines, as long as standard error is read."""
        self._put_repeats(float("inf"))
        self._ending = True
        self._queue.put(None)
        began_s = progressed_s = time.monotonic()
        written = self._written
        while self._thread.is_alive():
            self._thread.join(STALLED_S / 10)
            now_s = time.monotonic()
            if self._written != written:
                written, progressed_s = self._written, now_s
            if now_s - progressed_s >= STALLED_S or now_s - began_s >= FLUSH_S:
                break
        super().close()

    def recent(self) -> list[str]:
        """Return the newest lines, oldest first, each cut to RECENT_CHARACTERS_MAX. Callable from any thread."""
        self.acquire()
        try:
            return list(self._recent)
        finally:
            self.release()

    def _put(self, line: str) -> None:
        self._recent.append(line[:RECENT_CHARACTERS_MAX])
        if self._queue.qsize() < LINES_MAX:
            self._queue.put(line)
        else:
            self.lost += 1

    def _put_repeats(self, now_s: float) -> None:
        self.acquire()
        try:
            for record, count in self._repeats.take_due(now_s):
                record.created = time.time()
                self._put(self._format(record, count))
        finally:
            self.release()

    def _write_on(self) -> None:
        while True:
            try:
                line = self._queue.get(timeout=None if self._repeats.is_empty else LOOK_S)
            except Empty:
                line = None
            self._put_repeats(time.monotonic())
            if line is not None:
                self._write(line)
            elif self._ending and self._queue.empty():
                self._tell_lost()
                return
            if self._queue.empty():
                self._tell_lost()

    def _tell_lost(self) -> None:
        lost = self.lost - self._lost_told
        if lost:
            self._lost_told += lost
            text = f"{lost} log lines were lost: standard error was not read in time"
            self._write(self._format(logging.makeLogRecord({"levelname": "WARNING", "msg": text}), 0))

    def _write(self, line: str) -> None:
        left = memoryview((line + "\n").encode(errors="backslashreplace"))
        while left:
            try:
                left = left[os.write(self._handle, left) :]
            except BlockingIOError:
                select.select((), (self._handle,), ())
            except OSError:
                # nothing will ever be read: the pipe or the terminal is closed
                break
        self._written += 1


@contextmanager
def logging_to_stderr(log_format: LogFormat) -> Iterator[LineWriter]:
    """Send everything that is logged, warned of or raised out of sight to standard error, until the end of the block.

    Nothing in between waits for standard error; at the end it is waited for as ``LineWriter.close`` says.
    """
    writer = LineWriter(log_format)
    root = logging.getLogger()
    root.addHandler(writer)
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    hooks = sys.unraisablehook, threading.excepthook
    sys.unraisablehook = _log_unraisable
    threading.excepthook = _log_thread_end
    try:
        yield writer
    finally:
        sys.unraisablehook, threading.excepthook = hooks
        logging.captureWarnings(False)
        root.removeHandler(writer)
        writer.close()


def recent_lines() -> list[str]:
    """Return the newest lines that this process has written to standard error; empty if it writes no log lines."""
    writers = [handler for handler in logging.getLogger().handlers if isinstance(handler, LineWriter)]
    return [line for writer in writers for line in writer.recent()]


def _log_unraisable(what: sys.UnraisableHookArgs) -> None:
    error = what.exc_value
    logging.getLogger("lading").error(
        "%s %r", what.err_msg or "an exception was ignored in", what.object, exc_info=error or True
    )


def _log_thread_end(what: threading.ExceptHookArgs) -> None:
    name = what.thread.name if what.thread else "?"
    logging.getLogger("lading").error("the thread %s ended", name, exc_info=what.exc_value or True)


class _WithoutCancelled(logging.Filter):
    """Leave out what uvicorn logs of requests that it cancels because a server ends: a traceback for each."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is logged."""
        # commands import this module, and most of them no event loop
        import asyncio

        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, asyncio.CancelledError) and record.msg != _CANCELLING


_CANCELLING: Final = "Cancel %s running task(s), timeout graceful shutdown exceeded"


def quiet_uvicorn() -> None:
    """Have uvicorn log warnings and errors only, and nothing about requests that the end of a server cuts off."""
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    errors = logging.getLogger("uvicorn.error")
    if not any(isinstance(each, _WithoutCancelled) for each in errors.filters):
        errors.addFilter(_WithoutCancelled())
