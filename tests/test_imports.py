"""What importing Lading costs: heavy parts load where they are used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("numba", "numpy", "pyarrow", "pyspark", "pandas", "httpx", "starlette", "sqlglot", "rich", "pydantic")


def loaded_after(statement: str, names: tuple[str, ...]) -> list[str]:
    """Which of ``names`` a fresh interpreter has loaded after ``statement``."""
    script = f"{statement}\nimport sys\nprint(*[name for name in {names!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()


def test_import_lading_loads_nothing_heavy() -> None:
    assert loaded_after("import lading", HEAVY) == []


def test_headers_need_nothing_heavy() -> None:
    assert loaded_after("import lading; lading.Headers({'a': lading.u16(3)})", HEAVY) == []


@pytest.mark.parametrize(
    "module",
    [
        "lading.broker.broker",
        "lading.dialects.iggy_classic.messages",
        "lading.endpoints.iggy.endpoint",
        "lading.log.partition",
        "lading.serve",
        "lading.transports.lading.transport",
    ],
)
def test_no_room_compiles_at_import(module: str) -> None:
    assert loaded_after(f"import {module}", ("numba", "pyspark")) == []


def test_endpoints_load_nothing_that_only_a_login_or_tls_needs() -> None:
    code = (
        "from pkgutil import resolve_name; from lading.dialects.protocols import ENDPOINTS\n"
        "import lading.serve, lading.broker.broker\n"
        "for spec in ENDPOINTS.values(): resolve_name(spec.factory)"
    )
    assert loaded_after(code, ("jwt", "cryptography")) == []


def test_the_command_line_needs_no_spark() -> None:
    assert loaded_after("import lading.cli.main", ("numba", "pyspark", "pyarrow")) == []


def test_the_broker_leaves_out_what_it_never_calls() -> None:
    code = (
        "from lading.lean_imports import install_lean_imports; install_lean_imports()\n"
        "import lading.endpoints.http_shared.http, kafka.protocol, numpy\n"
        "from uvicorn.lifespan.off import LifespanOff"
    )
    assert loaded_after(code, ("uvicorn.main", "click", "kafka.client_async", "pandas")) == []


def test_numpy_makes_no_threads_in_a_broker() -> None:
    """OpenBLAS makes one for each core and has them spin, for functions that nothing here calls."""
    script = (
        "import os\n"
        "from lading.lean_imports import install_lean_imports; install_lean_imports()\n"
        "import numpy\n"
        "print(len(os.listdir('/proc/self/task')))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "1\n"


def test_what_is_put_off_is_run_once_by_the_first_of_many_threads() -> None:
    script = """
import sys, threading
from lading.lean_imports import DEFERRED, install_lean_imports, load_deferred
install_lean_imports()
import pyarrow as pa
import pyarrow.compute as pc
assert "add" not in vars(pc), "it was run at once"
loader, runs = pc.__spec__.loader._loader, []
run = loader.exec_module
loader.exec_module = lambda module: (runs.append(module), run(module))
start, found = threading.Barrier(8), []
def use():
    start.wait()
    found.append(pc.sum(pa.array([1, 2])).as_py())
threads = [threading.Thread(target=use) for _ in range(8)]
[one.start() for one in threads], [one.join() for one in threads]
load_deferred()
assert not hasattr(pc, "no_such_function")
print(found == [3] * 8, len(runs), *DEFERRED)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.split(), done.stderr) == (["True", "1", "pyarrow.compute"], "")


def test_no_thread_sees_a_part_of_what_was_put_off(tmp_path: Path) -> None:
    """As with pyarrow.compute, where a name is first that of a generated function, and then of another one."""
    (tmp_path / "put_off.py").write_text(
        "import threading\nword = 'half'\nthreading.begun.set()\nthreading.asked.wait(10)\nword = 'whole'\n"
    )
    script = """
import sys, threading, time
threading.begun, threading.asked = threading.Event(), threading.Event()
from lading import lean_imports
lean_imports.DEFERRED = ("put_off",)
lean_imports.install_lean_imports()
import put_off
threading.Thread(target=lean_imports.load_deferred).start()
threading.begun.wait(10)
threading.Timer(0.2, threading.asked.set).start()
print(put_off.word)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("whole\n", "")
