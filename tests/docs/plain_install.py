"""What `pip install .` gives without extras, from the packages of this environment: linked, nothing is fetched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from tests.docs.pages import RUN_PAGES, Step

ROOT: Final = Path(__file__).parents[2]


def make_plain_environment(place: Path) -> Path:
    """Make a virtual environment with Lading's own requirements and no extras; return its Python."""
    venv.create(place, with_pip=False, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    for distribution in _required_distributions():
        for name in {file.parts[0] for file in distribution.files or () if ".." not in file.parts}:
            entry = site / name
            # where Lading lies is said by PYTHONPATH, and bytecode of single modules is left out
            if not entry.exists() and entry.suffix != ".pth" and name != "__pycache__":
                entry.symlink_to(Path(str(distribution.locate_file(name))))
    return place / "bin" / "python"


def _required_distributions() -> Iterator[metadata.Distribution]:
    left, seen = ["lading"], set()
    while left:
        name = left.pop()
        if name.lower() in seen:
            continue
        seen.add(name.lower())
        distribution = metadata.distribution(name)
        yield distribution
        for text in distribution.requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                left.append(requirement.name)


def run_plain(
    python: Path, code: str, directory: Path, environment: dict[str, str], given: str = "", timeout_s: float = 280
) -> subprocess.CompletedProcess[str]:
    """Run ``code`` with the Python of a plain environment, in ``directory``."""
    return subprocess.run(
        [str(python), "-c", code], cwd=directory, input=given, capture_output=True, text=True, timeout=timeout_s,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])} | environment,
    )  # fmt: skip


def run_pages(
    python: Path, directory: Path, environment: dict[str, str], pages: Sequence[Sequence[Step]]
) -> str | None:
    """Run pages, one after the other, in one process of a plain environment; return what it said if one failed."""
    done = run_plain(python, RUN_PAGES, directory, environment, json.dumps(pages))
    return None if done.returncode == 0 else f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def is_plain(module: str) -> bool:
    """Whether a plain environment has a module that a page imports."""
    return module in sys.stdlib_module_names or module in {"lading", "pyarrow", "kafka"}
