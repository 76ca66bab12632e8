"""What importing Lading costs: heavy parts load where they are used."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lading import Producer, testing

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


@pytest.mark.turns(3)
def test_no_room_compiles_at_import() -> None:
    """One after the other, so that the first one that does is told."""
    modules = (
        "lading.dialects.iggy.classic.messages",
        "lading.log.partition",
        "lading.transports.lading.transport",
        "lading.endpoints.iggy.endpoint",
        "lading.broker.broker",
        "lading.serve.serve",
    )
    code = (
        f"import sys; from importlib import import_module\nfor module in {modules!r}:\n    import_module(module)\n"
        "    assert not {'numba', 'pyspark'} & sys.modules.keys(), module"
    )
    assert loaded_after(code, ("numba", "pyspark")) == []


def test_endpoints_load_nothing_that_only_a_login_or_tls_needs() -> None:
    code = (
        "from pkgutil import resolve_name; from lading.dialects.protocols import ENDPOINTS\n"
        "import lading.serve.serve, lading.broker.broker\n"
        "for spec in ENDPOINTS.values(): resolve_name(spec.factory)"
    )
    assert loaded_after(code, ("jwt", "cryptography")) == []


def test_the_command_line_needs_no_spark() -> None:
    assert loaded_after("import lading.cli.main", ("numba", "pyspark", "pyarrow")) == []


@pytest.mark.turns(3)
@pytest.mark.parametrize("command", [["message", "poll", "t"], ["headers", "t"], ["topic", "list"]])
def test_short_commands_need_no_pandas(command: list[str]) -> None:
    """pyarrow imports it at the first array, which is a third of such a command."""
    with testing.broker() as broker, Producer(broker.url) as producer:
        producer.send("t", b"x", headers={"carrier": "UA"})
        producer.flush()
        script = (
            f"import sys; sys.argv = ['lading', *{command!r}, '--from', {broker.url!r}]\n"
            "from lading.cli.main import main\n"
            "try:\n    main()\nfinally:\n    print('pyarrow' in sys.modules, 'pandas' in sys.modules, file=sys.stderr)"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "t" in done.stdout
    assert done.stderr.splitlines()[-1] in ("True False", "False False")


def test_the_broker_leaves_out_what_it_never_calls() -> None:
    code = (
        "from lading.serve.lean_imports import install_lean_imports; install_lean_imports()\n"
        "import lading.endpoints.http_shared.http, kafka.protocol, numpy\n"
        "from uvicorn.lifespan.off import LifespanOff"
    )
    assert loaded_after(code, ("uvicorn.main", "click", "kafka.client_async", "pandas")) == []


def test_the_broker_writes_no_docstrings_of_compute_functions() -> None:
    """pyarrow parses the options of each into a docstring, which is half of that import; the options stay."""
    code = (
        "from lading.serve.lean_imports import install_lean_imports; install_lean_imports()\n"
        "import pyarrow.compute as pc\n"
        "assert pc.match_substring(['ab'], 'B', ignore_case=True).to_pylist() == [True]"
    )
    assert loaded_after(code, ("pydoc",)) == []


def test_numpy_makes_no_threads_in_a_broker() -> None:
    """OpenBLAS makes one for each core and has them spin, for functions that nothing here calls."""
    script = (
        "import os\n"
        "from lading.serve.lean_imports import install_lean_imports; install_lean_imports()\n"
        "import numpy\n"
        "print(len(os.listdir('/proc/self/task')))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "1\n"
