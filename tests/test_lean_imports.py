"""A module that is executed when something of it is used: once, whichever thread asks first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SLOW_MODULE = """
import time
COUNT = globals().get("COUNT", 0) + 1
time.sleep(0.05)
ANSWER = 42
"""


def run(script: str, directory: Path) -> str:
    """Run a script in a process of its own, which ``slow`` can be imported in."""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=directory, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def late(tmp_path: Path) -> str:
    """The beginning of a script in whose process ``slow`` comes late."""
    (tmp_path / "slow.py").write_text(SLOW_MODULE)
    return (
        "import sys; sys.path.insert(0, '.'); from lading import lean_imports\n"
        "lean_imports.LATE = frozenset({'slow'}); sys.meta_path.insert(0, lean_imports.LeanImports())\n"
    )


def test_a_late_module_is_executed_at_its_first_use(late: str, tmp_path: Path) -> None:
    script = "import slow\nbefore = 'ANSWER' in vars(slow)\nprint(before, slow.ANSWER, 'ANSWER' in vars(slow))"
    assert run(late + script, tmp_path) == "False 42 True"


def test_threads_that_use_a_late_module_at_a_time_execute_it_once(late: str, tmp_path: Path) -> None:
    script = (
        "import slow\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(8) as threads:\n"
        "    answers = list(threads.map(lambda _: slow.ANSWER, range(8)))\n"
        "print(answers == [42] * 8, slow.COUNT)"
    )
    assert run(late + script, tmp_path) == "True 1"


def test_loading_late_modules_executes_only_imported_ones(late: str, tmp_path: Path) -> None:
    script = (
        "lean_imports.load_late_modules(); print('slow' in sys.modules, end=' ')\n"
        "import slow\nlean_imports.load_late_modules(); print(vars(slow)['ANSWER'])"
    )
    assert run(late + script, tmp_path) == "False 42"


def test_an_unknown_name_of_a_late_module_is_an_error(late: str, tmp_path: Path) -> None:
    script = "import slow\ntry:\n    slow.nothing\nexcept AttributeError as error:\n    print(error)"
    assert "nothing" in run(late + script, tmp_path)


def test_the_functions_of_arrow_come_late_in_a_broker(tmp_path: Path) -> None:
    script = (
        "import sys; from lading.lean_imports import LeanImports; sys.meta_path.insert(0, LeanImports())\n"
        "from pkgutil import resolve_name; from lading.dialects.protocols import ENDPOINTS\n"
        "import lading.serve, lading.broker.broker\n"
        "for spec in ENDPOINTS.values(): resolve_name(spec.factory)\n"
        "import pyarrow.compute as pc\nprint('equal' in vars(pc), pc.equal(1, 1).as_py())"
    )
    assert run(script, tmp_path) == "False True"
