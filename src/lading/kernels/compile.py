"""``python -m lading.kernels.compile``: compile every kernel into the cache, as ``make install`` does."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import Final

from . import engine

VERBOSE: Final = "-v"
SECOND: Final = "--second"
"""The argument of the process that compiles from the end, while another one compiles from the beginning."""


def main(arguments: list[str]) -> int:
    """Compile all homes, in two processes, and mark the cache complete.

    Prints one line at the end, with ``-v`` one for each home as well.
    With ``--beside`` one process does so for another at work: prints nothing, yields the CPU, and ends when its
    standard input does, which is when that process ends, however it does.
    """
    homes = engine.list_kernel_modules()
    if SECOND in arguments:
        threading.Thread(target=_end_with_input, daemon=True).start()
        for home in reversed(homes):
            engine.load(home)
        return 0
    if "--beside" in arguments:
        os.nice(10)
        threading.Thread(target=_end_with_input, daemon=True).start()
        for home in homes:
            engine.load(home)
        engine.mark_complete()
        return 0
    started = time.perf_counter()
    second = subprocess.Popen([sys.executable, "-m", __spec__.name, SECOND], stdin=subprocess.PIPE)
    try:
        for home in homes:
            before = time.perf_counter()
            engine.load(home)
            if VERBOSE in arguments:
                print(f"{home:50} {time.perf_counter() - before:6.1f} s", flush=True)
    finally:
        second.communicate()
    engine.mark_complete()
    took_s = time.perf_counter() - started
    print(f"{len(homes)} modules of kernels are in {engine.cache_dir()} ({took_s:.1f} s)")
    return 0


def _end_with_input() -> None:
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
