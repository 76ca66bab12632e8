"""Starts Spark's Python workers from the installed PySpark.

Spark hands its workers PySpark as an archive without compiled modules, which every kind of worker process compiles
anew: half a second each. Where the same package is installed besides, it is used instead.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder

ARCHIVE = "pyspark.zip"

if __name__ == "__main__":
    installed = [place for place in sys.path if not place.endswith(ARCHIVE)]
    if PathFinder.find_spec("pyspark", installed) is not None:
        sys.path[:] = installed
    from pyspark.daemon import manager

    manager()
