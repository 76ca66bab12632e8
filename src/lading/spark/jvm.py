"""The JVM of a session while it starts: known from its first moment, ended if its start is abandoned.

PySpark forgets a JVM whose start was interrupted, and that JVM then waits for a connection for ever.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .java import NOTED

_NOTE_WAIT_S = 5.0
_starting: list[Path] = []
"""The directories of the starts in progress."""


@contextmanager
def starting() -> Iterator[None]:
    """Return a context in which a session is created. An error in it ends the JVM, unless PySpark can use it again.

    PySpark uses the JVM of an earlier session again and starts none: what was started nevertheless has no user.
    """
    earlier = _find_gateway()
    place = Path(tempfile.mkdtemp(prefix="lading-jvm-"))
    os.environ[NOTED] = str(place / "pid")
    _starting.append(place)
    try:
        yield
    except BaseException:
        if _find_gateway() is earlier:
            _end(place)
        raise
    finally:
        os.environ.pop(NOTED, None)
        with suppress(ValueError):
            _starting.remove(place)
        shutil.rmtree(place, ignore_errors=True)


def _find_gateway() -> object | None:
    """Return PySpark's connection to the JVM of a session, an earlier one included; None before the first."""
    pyspark = sys.modules.get("pyspark")
    return None if pyspark is None else pyspark.SparkContext._gateway


def kill_starting_jvms() -> None:
    """End the JVM of every start in progress, in any thread; those starts then fail."""
    while _starting:
        _end(_starting.pop())


def _end(place: Path) -> None:
    """End the Java that wrote its process id; one that starts later cannot write it, and exits."""
    aside = place.with_name(f"{place.name}.given-up")
    try:
        place.rename(aside)
    except OSError:
        return
    note = aside / "pid"
    until = time.monotonic() + _NOTE_WAIT_S
    # a note that is there and empty is just being written
    while note.exists() and not (text := note.read_text().strip()) and time.monotonic() < until:
        time.sleep(0.01)
    if note.exists() and text.isdecimal():
        with suppress(ProcessLookupError):
            os.kill(int(text), signal.SIGKILL)
    shutil.rmtree(aside, ignore_errors=True)
