"""``python packaging/test_pythons.py``: the unit tests on each Python that pyproject.toml names and this machine has.

Each Python has an environment of its own in build/pythons, without extras. Exit 1 if tests of one fail.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
ENVIRONMENTS: Final = ROOT / "build" / "pythons"
ROOMS: Final = ("model", "dialects", "filter", "columns", "chunk", "log")
"""Rooms of tests that need no client, no server and no extra."""
NEEDED: Final = ("httpx", "hypothesis", "pytest", "pytest-timeout", "pytest-xdist")
CLASSIFIER: Final = re.compile(r"Programming Language :: Python :: (3\.\d+)")
INSTALL_TIMEOUT_S: Final = 900
COMPILE_TIMEOUT_S: Final = 1200
TEST_TIMEOUT_S: Final = 1800
ASK_TIMEOUT_S: Final = 30
NO_PACKAGE: Final = "No matching distribution found for"


def list_versions(pyproject: Path) -> list[str]:
    """Return the versions of Python that the classifiers name."""
    classifiers = tomllib.loads(pyproject.read_text())["project"]["classifiers"]
    return [found[1] for text in classifiers if (found := CLASSIFIER.fullmatch(text))]


def find_pythons(version: str, environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the places where a Python of this version may be: this one, those of pyenv, that of the path."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        yield Path(sys.executable)
    pyenv = Path(environment.get("PYENV_ROOT") or Path(environment.get("HOME", "/")) / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python"), reverse=True)
    if found := shutil.which(f"python{version}", path=environment.get("PATH")):
        yield Path(found)


def find_python(version: str, environment: Mapping[str, str]) -> Path | None:
    """Return a Python of this version that starts; None if this machine has none."""
    question = "import sys; print('%d.%d' % sys.version_info[:2])"
    for python in find_pythons(version, environment):
        # a shim of pyenv is in the path without its Python
        done = subprocess.run(
            [python, "-c", question], capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=False
        )
        if (done.returncode, done.stdout.strip()) == (0, version):
            return python
    return None


def install(python: Path, place: Path) -> str | None:
    """Install Lading without extras into an environment in ``place``; return the reason if a package does not exist."""
    subprocess.run([python, "-m", "venv", "--clear", place], check=True, timeout=INSTALL_TIMEOUT_S)
    pip = [f"{place}/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command = [*pip, "-c", f"{ROOT}/constraints.txt", "-e", f"{ROOT}", *NEEDED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
    if NO_PACKAGE in done.stderr:
        return next(line for line in done.stderr.splitlines() if NO_PACKAGE in line).removeprefix("ERROR: ")
    if done.returncode:
        raise SystemExit(f"Lading cannot be installed by {python}:\n{done.stderr}")
    return None


def run_tests(place: Path) -> int:
    """Compile the kernels and run the rooms; return the exit code of the first that fails.

    A test that finds no compiled kernels compiles them itself, which a busy machine does not do in a test's 120 s: then
    the first tests of some rooms failed, and passed when they were run alone later.
    """
    rooms = [f"tests/{room}" for room in ROOMS]
    command = [f"{place}/bin/python", "-m", "pytest", "-p", "no:cacheprovider", *rooms]
    # the environment's own Lading, and not one that a shell points to
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    compiling = [f"{place}/bin/python", "-m", "lading.kernels.compile"]
    compiled = subprocess.run(compiling, cwd=ROOT, env=environment, timeout=COMPILE_TIMEOUT_S, check=False).returncode
    if compiled:
        return compiled
    return subprocess.run(command, cwd=ROOT, env=environment, timeout=TEST_TIMEOUT_S, check=False).returncode


def main() -> int:
    """Run the tests on each Python; print what ran, and what did not and why."""
    lines, failed = [], False
    for version in list_versions(ROOT / "pyproject.toml"):
        python = find_python(version, os.environ)
        if python is None:
            lines.append(f"{version}: not run, this machine has no Python {version}")
            continue
        print(f"{version}: installing by {python} …", flush=True)
        place = ENVIRONMENTS / version
        missing = install(python, place)
        if missing is not None:
            lines.append(f"{version}: not run, {missing}")
            continue
        code = run_tests(place)
        lines.append(f"{version}: {'passed' if code == 0 else f'failed, pytest ended with {code}'}")
        failed = failed or code != 0
    print("\n".join(lines))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
