"""Releases of PySpark from the registry, each in a directory of its own, which goes first on the path of Python."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.interop.maven import Unavailable as Unavailable

INSTALL_TIMEOUT_S = 900


def install(release: str) -> Path:
    """Return a directory with that release of PySpark, made once in the user's cache; Unavailable."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "lading" / "pyspark"
    place = cache / release
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{release}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "ready").exists():
            shutil.rmtree(place, ignore_errors=True)
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(place), f"pyspark=={release}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
            if done.returncode:
                raise Unavailable(
                    f"pyspark {release} cannot be installed here: {done.stderr.strip().splitlines()[-1:]}"
                )
            (place / "ready").touch()
    return place
