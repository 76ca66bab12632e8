"""What our tasks do for the Python workers of Spark that run them."""

from __future__ import annotations

import gc
import sys

DAEMONS = ("pyspark.daemon", "lading.spark.daemon")
"""What a worker of Spark was started as, before it was forked."""

_modules = 0
"""Loaded when the worker settled last."""


def freeze_modules() -> None:
    """At the end of a task: the modules loaded by now are no garbage, and need not be gone through again.

    Spark collects garbage after each task. With Arrow, Numba and the protocols loaded that takes 50 to 120 ms of CPU
    time, as much as reading 200,000 messages. Outside a worker nothing is done: the process is somebody else's.
    """
    global _modules
    started_as = getattr(sys.modules["__main__"].__spec__, "name", "")
    if len(sys.modules) > _modules and started_as in DAEMONS:
        _modules = len(sys.modules)
        gc.freeze()
