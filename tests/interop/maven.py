"""Jars from a Maven repository, fetched once into the user's cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

FETCH_TIMEOUT_S = 300
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


class Unavailable(Exception):
    """Something cannot run here; the sentence says what is missing."""


def fetched(name: str, artefacts: Sequence[str], *, alone: bool = False) -> Path:
    """A directory of what ``group:name:version[:type:classifier]`` rows name, and unless ``alone`` what they need."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "lading" / name
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (cache / "complete").exists():
            maven = shutil.which("mvn")
            if maven is None:
                raise Unavailable(f"mvn is not installed, and the jars of {name} are not in the cache")
            (cache / "pom.xml").write_text(_pom(artefacts, alone))
            command = [maven, "-q", "-B", "-f", str(cache / "pom.xml"), PLUGIN]
            command += ["-DincludeScope=runtime", f"-DoutputDirectory={cache / 'libs'}"]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
            except subprocess.TimeoutExpired:
                raise Unavailable(
                    f"the jars of {name} cannot be fetched: mvn did not end within {FETCH_TIMEOUT_S:g} s"
                ) from None
            if done.returncode:
                raise Unavailable(f"the jars of {name} cannot be fetched: {done.stdout.strip().splitlines()[:1]}")
            (cache / "complete").touch()
    return cache / "libs"


def _pom(artefacts: Sequence[str], alone: bool) -> str:
    without = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    rows = []
    for artefact in artefacts:
        group, name, version, *form = artefact.split(":")
        kind = f"<type>{form[0]}</type><classifier>{form[1]}</classifier>" if form else ""
        rows.append(
            f"    <dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
            f"{kind}{without if alone else ''}</dependency>\n"
        )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n  <modelVersion>4.0.0</modelVersion>\n'
        "  <groupId>local</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>\n"
        f"  <dependencies>\n{''.join(rows)}  </dependencies>\n</project>\n"
    )
