"""The Python workers of Spark: the interpreter they run on, and less garbage collection in them.

Spark passes PySpark to its workers as an archive without compiled modules, which every kind of worker process compiles
again: half a second each, and a streaming query has seven kinds. So they run on this interpreter, with the installed
PySpark instead of the archive.
"""

from __future__ import annotations

import gc
import hashlib
import os
import shlex
import sys
import traceback
from typing import Any

from ..model.cache_directory import find_cache_directory
from ..runtime.private_files import make_private_directory

DAEMONS = ("pyspark.daemon", "lading.spark.daemon")
"""The modules that a process of Spark's workers was started as, before it forked."""

_modules = 0
"""The number of modules when they were last frozen."""


def freeze_modules() -> None:
    """Exclude the modules loaded so far from garbage collection (``gc.freeze``). Called at the end of a task.

    Spark collects garbage after each task. With Arrow, Numba and the protocols loaded that takes 50 to 120 ms of CPU
    time, as much as reading 200,000 messages. Does nothing outside a worker, in processes that are not ours.
    """
    global _modules
    started_as = getattr(sys.modules["__main__"].__spec__, "name", "")
    if len(sys.modules) > _modules and started_as in DAEMONS:
        _modules = len(sys.modules)
        gc.freeze()


class _ReaderTraceback:
    """The module ``traceback`` for PySpark's daemon, which prints nothing if Spark took no more rows."""

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def print_exc(self) -> None:
        """Print the exception, unless it is the end of the connection to Spark."""
        if not isinstance(sys.exc_info()[1], (BrokenPipeError, ConnectionResetError)):
            traceback.print_exc()


def end_with_reader() -> None:
    """Have this worker end in silence if Spark takes no more rows, as ``show``, ``take`` and ``limit`` do.

    PySpark's own daemon prints a traceback each time, in notebooks as a red cell. Lading's daemon needs nothing
    (``daemon.ending_with_reader``); a session that was created without ``lading.spark.session`` has PySpark's.
    """
    main = sys.modules["__main__"]
    if getattr(main.__spec__, "name", "") == DAEMONS[0]:
        vars(main)["traceback"] = _ReaderTraceback()


ARCHIVE = "pyspark.zip"
SHIM = """#!/bin/sh
# Starts Python without Spark's archive of PySpark on its path: the same package is installed, and compiled.
kept=
IFS=:
for part in $PYTHONPATH; do
    case $part in
        */{archive}) ;;
        *) kept=$kept${{kept:+:}}$part ;;
    esac
done
unset IFS
PYTHONPATH=$kept exec {python} "$@"
"""


def worker_python() -> str:
    """Return the program to start workers with: a script in the user's cache, or this interpreter if that fails.

    There is a script for each interpreter, so that environments do not change each other's.
    """
    import pyspark

    if os.name != "posix" or ARCHIVE in (pyspark.__file__ or ""):
        return sys.executable
    text = SHIM.format(archive=ARCHIVE, python=shlex.quote(sys.executable))
    script = find_cache_directory() / "python" / hashlib.sha256(text.encode()).hexdigest()[:16]
    if not script.exists():
        draft = script.with_name(f".{script.name}-{os.getpid()}")
        try:
            make_private_directory(script.parent)
            draft.write_text(text)
            draft.chmod(0o755)
            draft.replace(script)
        except OSError:
            return sys.executable
    return str(script)
