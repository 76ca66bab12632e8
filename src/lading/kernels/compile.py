"""``python -m lading.kernels.compile``: compile every kernel into the cache. What ``make install`` runs."""

from __future__ import annotations

import os
import sys
import threading
import time

from . import engine


def main(arguments: list[str]) -> int:
    """Compile all homes and mark the cache complete.

    With ``--beside`` it does so for a process at work: prints nothing, yields the CPU, and ends when its standard input
    does, which is when that process ends, however it does.
    """
    beside = "--beside" in arguments
    if beside:
        os.nice(10)
        threading.Thread(target=_end_with_input, daemon=True).start()
    started = time.perf_counter()
    for home in engine.list_kernel_modules():
        before = time.perf_counter()
        engine.load(home)
        if not beside:
            print(f"{home:50} {time.perf_counter() - before:6.1f} s", flush=True)
    engine.mark_complete()
    if not beside:
        print(f"kernels are in {engine.cache_dir()} ({time.perf_counter() - started:.1f} s)")
    return 0


def _end_with_input() -> None:
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
