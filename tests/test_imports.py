"""What importing Lading costs: heavy parts load where they are used."""

from __future__ import annotations

import subprocess
import sys

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
