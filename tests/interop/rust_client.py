"""Rust clients of the crate ``iggy``, 0.0.30 to 0.11.0 and a pre-release: built once into a cache, run as programs."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

HERE = Path(__file__).parent
PROGRAMS = {
    "iggy_rust": "lading-iggy-client",
    "iggy_rust_headers_only": "lading-iggy-headers-only",
    "iggy_rust_current": "lading-iggy-current",
    "iggy_rust_newest": "lading-iggy-newest",
}
"""The client of each folder beside this file: of 0.0.40, of 0.0.30, of 0.11.0, the newest release, and of what is ahead
of it."""
SHARED: Final = {"iggy_rust_newest": "iggy_rust_current"}
"""Folders whose program is that of another one, but for files of their own."""
BUILD_TIMEOUT_S = 1200
RUN_TIMEOUT_S = 120


class Unavailable(Exception):
    """The client cannot be built here; the sentence says what is missing."""


def build(release: bool = False, folder: str = "iggy_rust") -> Path:
    """The program of a folder; Unavailable without cargo, OpenSSL's headers or the crate. Minutes, the first time."""
    cargo = shutil.which("cargo") or shutil.which("cargo", path=str(Path("~/.cargo/bin").expanduser()))
    if cargo is None:
        raise Unavailable("cargo is not installed")
    pkg_config = shutil.which("pkg-config")
    if pkg_config is None or subprocess.run([pkg_config, "--exists", "openssl"], check=False).returncode:
        raise Unavailable("libssl-dev and pkg-config are not installed (the crate links OpenSSL)")
    cache = _cache_of(folder)
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # outside of the clone, where the lock file and the build are kept for the next run
        for source in (SHARED.get(folder, folder), folder):
            ignored = shutil.ignore_patterns("target", "Cargo.lock")
            shutil.copytree(HERE / source, cache, dirs_exist_ok=True, ignore=ignored)
        # what it cannot read is our fault, and no reason to leave a client out
        read = subprocess.run([cargo, "metadata", "--no-deps", "--format-version=1"], cwd=cache, capture_output=True)
        assert read.returncode == 0, read.stderr.decode()
        command = ["nice", cargo, "build", *(["--release"] if release else [])]
        done = subprocess.run(command, cwd=cache, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    if done.returncode:
        raise Unavailable(f"the crate does not build here: {done.stderr.strip().splitlines()[-1:]}")
    return _program_of(folder, release)


def is_built(folder: str) -> bool:
    """Whether the program of a folder was built here before."""
    return _program_of(folder).exists()


def _cache_of(folder: str) -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "lading" / folder


def _program_of(folder: str, release: bool = False) -> Path:
    return _cache_of(folder) / "target" / ("release" if release else "debug") / PROGRAMS[folder]


def run(program: Path, *arguments: str) -> list[dict[str, Any]]:
    """The JSON lines the program prints; AssertionError with its words where it fails."""
    done = subprocess.run(
        [str(program), *arguments], capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"{' '.join(arguments)}: {done.stderr[-2000:]}"
    return [json.loads(line) for line in done.stdout.splitlines()]
