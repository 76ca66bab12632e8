"""``python -m tests.simulation SEED [COUNT]``: simulate seeds; the first that finds something ends with its error."""

from __future__ import annotations

import sys
import time

from tests.simulation.seeds import prepare, run_seed


def main() -> None:
    first, count = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    prepare()
    began_s = time.process_time()
    for seed in range(first, first + count):
        run_seed(seed)
    print(f"{count} seeds, {(time.process_time() - began_s) / count * 1e3:.1f} ms CPU each: nothing found")


if __name__ == "__main__":
    main()
