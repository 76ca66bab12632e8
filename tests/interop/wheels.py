"""Published Python packages, each unmodified in an environment of its own that is made once in the user's cache."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

INSTALL_TIMEOUT_S = 600
RUN_TIMEOUT_S = 60


class Unavailable(Exception):
    """The package cannot be installed here; the sentence says why."""


def install(package: str, version: str, python: str, extras: str = "", *, beside: tuple[str, ...] = ()) -> Path:
    """Return the interpreter of an environment with just this package, or with all that its ``extras`` need.

    With packages ``beside`` it, it has these and what all of them need. Raises Unavailable.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "lading" / "wheels"
    kind = "-beside" if beside else "-extras" if extras else ""
    place = cache / f"{package}-{version}-python{python}{kind}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = place / "ready"
        if not ready.exists():
            shutil.rmtree(place, ignore_errors=True)
            _run_step([_find_python(python), "-m", "venv", str(place)])
            wanted = [f"{package}[{extras}]=={version}" if extras else f"{package}=={version}", *beside]
            if not (extras or beside):
                wanted = ["--no-deps", *wanted]
            _run_step([str(place / "bin" / "pip"), "install", "--quiet", *wanted])
            ready.touch()
    return place / "bin" / "python"


def _find_python(version: str) -> str:
    """An interpreter of this version that runs: this one, one on the path, or one that pyenv keeps."""
    kept = sorted(map(str, Path("~/.pyenv/versions").expanduser().glob(f"{version}*/bin/python")))
    for candidate in (sys.executable, shutil.which(f"python{version}"), *kept):
        if candidate is None:
            continue
        told = subprocess.run(
            [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
        if told.stdout.strip() == version:
            return candidate
    raise Unavailable(f"there is no CPython {version} here")


def _run_step(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[-1]} was not installed within {INSTALL_TIMEOUT_S} s") from None
    if done.returncode:
        raise Unavailable(f"{command[-1]} cannot be installed here: {done.stderr.strip().splitlines()[-1:]}")


def run(python: Path, program: Path, *arguments: str) -> list[Any]:
    """Return the JSON lines a program prints; AssertionError with its words if it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(python), str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]
