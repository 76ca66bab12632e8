"""The process from which Spark forks its Python workers, with all that our tasks need loaded before the first fork.

Spark starts it by name (``spark.python.daemon.module``), which ``lading.spark.session`` sets. Otherwise every worker
loads the same modules: 1.2 s of CPU time each, and a query has at least one worker per core.
"""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

from pyspark import daemon

TASKS: Final = "LADING_TASKS"
"""Environment variable (``spark.executorEnv.LADING_TASKS``): further modules that tasks of this session need."""


def load() -> None:
    """Import what reads and writes topics, and the kernels if they are compiled already."""
    import pyarrow as pa

    from ..dialects.protocols import SCHEMES
    from ..kernels import engine

    # the first call looks for pandas, and imports it if it is installed, which takes a quarter of a second
    pa.array([])
    for name in os.environ.get(TASKS, "").split():
        import_module(name)
    transports = (scheme.transport.partition(":")[0] for scheme in SCHEMES.values())
    for name in (".sink", ".source", ".tables", *transports):
        import_module(name, __package__)
    if (engine.cache_dir() / engine.COMPLETE).exists():
        for home in engine.list_kernel_modules():
            engine.load(home)


def main() -> None:
    """Run as Spark's daemon. Import errors are ignored here: the task that needs the module reports them."""
    with suppress(Exception):
        load()
    # workers share these pages with each other as long as no collection touches them
    gc.collect()
    gc.freeze()
    vars(daemon)["worker"] = acknowledging(ending_with_reader(daemon.worker))
    daemon.manager()


def ending_with_reader(worker: Callable[..., int]) -> Callable[..., int]:
    """Return a worker that ends in silence if Spark takes no more rows, as ``show``, ``take`` and ``limit`` do.

    PySpark's own prints a traceback. Spark has closed the connection, so that the process ends like one that failed.
    """

    def end_with_reader(connection: socket.socket, *more: Any) -> int:
        try:
            return worker(connection, *more)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    return end_with_reader


def acknowledging(worker: Callable[..., int]) -> Callable[..., int]:
    """Return a worker that acknowledges at once (TCP_QUICKACK) what Spark sends of a task.

    Spark sends it in small pieces, each of which waits for the acknowledgement of the one before, and a system that
    has nothing to send delays it by 40 ms: the time of reading 100,000 messages. Linux resets the option whenever
    something is sent, so that it is set for every task.
    """

    def acknowledges(connection: socket.socket, *more: Any) -> int:
        if connection.family != socket.AF_UNIX and hasattr(socket, "TCP_QUICKACK"):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return worker(connection, *more)

    return acknowledges


if __name__ == "__main__":
    main()
