"""Tuning of the Python workers of Spark that run our tasks: less garbage collection."""

from __future__ import annotations

import gc
import sys

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
