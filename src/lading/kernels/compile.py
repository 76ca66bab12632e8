"""``python -m lading.kernels.compile``: compile every kernel into the cache. What ``make install`` runs."""

from __future__ import annotations

import os
import sys
import time

from . import engine


def main(arguments: list[str]) -> int:
    """Compile all homes and mark the cache complete; ``--quiet`` prints nothing and yields the CPU to others."""
    quiet = "--quiet" in arguments
    if quiet:
        os.nice(10)
    started = time.perf_counter()
    for home in engine.homes():
        before = time.perf_counter()
        engine.compiled(home)
        if not quiet:
            print(f"{home:50} {time.perf_counter() - before:6.1f} s", flush=True)
    engine.mark_complete()
    if not quiet:
        print(f"kernels are in {engine.cache_dir()} ({time.perf_counter() - started:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
