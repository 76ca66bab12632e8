"""The process that Spark forks its Python workers from, with all that our tasks need loaded before the first fork.

Spark starts it by name (``spark.python.daemon.module``); a session of ``lading.spark.session`` does. Every worker would
load the same things otherwise: 1.2 s of CPU time each, and a query has at least one worker a core.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

from pyspark import daemon

TASKS: Final = "LADING_TASKS"
"""Environment variable (``spark.executorEnv.LADING_TASKS``): modules that tasks of this session need besides."""


def load() -> None:
    """Import what reads and writes topics, and the kernels where they are compiled already."""
    import pyarrow as pa

    from ..kernels import engine
    from ..transports import open

    # the first one looks for pandas, which takes a quarter of a second where it is installed
    pa.array([])
    for name in os.environ.get(TASKS, "").split():
        import_module(name)
    for name in (".sink", ".source", ".tables", *(f"..transports.{one.module}" for one in open.SCHEMES.values())):
        import_module(name, __package__)
    if (engine.cache_dir() / "complete").exists():
        for home in engine.homes():
            engine.compiled(home)


def main() -> None:
    """Be Spark's daemon. What cannot be loaded here is said by the task that needs it."""
    with suppress(Exception):
        load()
    # workers share these pages with each other as long as no collection touches them
    gc.collect()
    gc.freeze()
    vars(daemon)["worker"] = _until_spark_is_gone(daemon.worker)
    daemon.manager()


def _until_spark_is_gone(worker: Callable[..., int]) -> Callable[..., int]:
    """A worker that says nothing of having lost a Spark that ended: its stack would be on the user's screen."""

    def until_gone(*arguments: Any) -> int:
        try:
            return worker(*arguments)
        except BrokenPipeError:
            return 1

    return until_gone


if __name__ == "__main__":
    main()
