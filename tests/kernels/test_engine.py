"""Who compiles when: nothing at import, once for all processes, never in a broker's way."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from lading.kernels import engine

SMALLEST = "lading.kernels.sync"


def run(program: str, cache: Path) -> str:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=100, check=True
    )
    return done.stdout.strip()


def test_rooms_import_no_numba() -> None:
    rooms = ["lading.chunk.runs", "lading.chunk.envelope", "lading.chunk.overlay", "lading.dialects.registry"]
    rooms += ["lading.dialects.iggy.classic.dialect", "lading.dialects.native.dialect", "lading.kernels.arena"]
    program = f"import sys, {', '.join(rooms)}; print([name for name in ('numba', 'llvmlite') if name in sys.modules])"
    assert run(program, Path("/nonexistent")) == "[]"


def test_every_kernels_module_is_a_home() -> None:
    homes = engine.list_kernel_modules()
    for home in ("lading.chunk.kernels", "lading.dialects.iggy.classic.kernels", SMALLEST):
        assert home in homes
    assert "lading.dialects.iggy.classic.send_kernels" in homes


@pytest.mark.turns(3, part=2)
def test_small_work_runs_on_the_twin_and_bulk_work_compiles(tmp_path: Path) -> None:
    program = (
        "import sys, types; from lading.kernels import engine; twin = types.ModuleType('twin')\n"
        f"small = engine.select('{SMALLEST}', twin, 100) is twin\n"
        "lazy = 'numba' not in sys.modules\n"
        f"bulk = engine.select('{SMALLEST}', twin, 1 << 20).__name__\n"
        f"print(small, lazy, bulk, engine.select('{SMALLEST}', twin, 100).__name__)"
    )
    assert run(program, tmp_path) == f"True True {SMALLEST} {SMALLEST}"


WITH_NUMBA = f"import sys; from lading.kernels import engine; engine.load('{SMALLEST}'); print('numba' in sys.modules)"
"""Loads kernels, and says whether that took Numba."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the smallest kernels, compiled here: each test that begins with one takes a copy."""
    cache = tmp_path_factory.mktemp("compiled")
    assert run(WITH_NUMBA, cache) == "True"
    return cache


@pytest.mark.turns(3, part=1)
def test_compiled_kernels_are_loaded_without_numba(compiled: Path) -> None:
    """Which are 150 modules, and a quarter of a second."""
    assert run(WITH_NUMBA, compiled) == "False"


@pytest.mark.turns(3, part=2)
def test_processes_that_start_together_compile_once(tmp_path: Path) -> None:
    program = (
        "import sys; from lading.kernels import engine\n"
        f"engine.load('{SMALLEST}'); print('numba' in sys.modules, engine.cache_dir())"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", program]
    started = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate(timeout=100)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    # who compiles imports Numba
    assert sorted(text.partition(" ")[0] for text in said) == ["False", "False", "True"]
    (directory,) = (tmp_path / "lading").iterdir()
    assert all(text.strip().endswith(str(directory)) for text in said)


@pytest.mark.turns(3, part=0)
def test_a_package_that_was_moved_finds_its_kernels_in_a_cache_that_nobody_may_write(
    compiled: Path, tmp_path: Path
) -> None:
    shutil.copytree(compiled, tmp_path, dirs_exist_ok=True)
    program = f"from lading.kernels import engine; engine.load('{SMALLEST}'); engine.mark_complete()"
    run(program, tmp_path)
    (cached,) = (tmp_path / "lading").iterdir()
    moved = tmp_path / "moved"
    shutil.copytree(engine.PACKAGE, moved / "lading", ignore=shutil.ignore_patterns("__pycache__"))
    (moved / "share" / "lading").mkdir(parents=True)
    shipped = cached.rename(moved / "share" / "lading" / cached.name)
    for path in (*shipped.rglob("*"), shipped):
        path.chmod(path.stat().st_mode & ~0o222)
    program = (
        f"import sys; sys.path.insert(0, '{moved}'); sys.prefix = '{moved}'; from lading.kernels import engine\n"
        f"engine.load('{SMALLEST}'); print('numba' in sys.modules, engine.PACKAGE)"
    )
    assert run(program, Path("/nonexistent")) == f"False {moved / 'lading'}"


def test_another_source_is_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = engine._fingerprint()
    package = tmp_path / "lading"
    (package / "kernels").mkdir(parents=True)
    (package / "kernels" / "memory.py").write_text("changed")
    monkeypatch.setattr(engine, "PACKAGE", package)
    assert engine._fingerprint() != before


def test_nothing_writable_is_one_warning_and_a_directory_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    in_the_way = tmp_path / "cache"
    in_the_way.write_text("a file, not a directory")
    engine._cache_dir.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(in_the_way))
    with caplog.at_level(logging.WARNING):
        directory = engine.cache_dir()
        assert engine.cache_dir() == directory
    engine._cache_dir.cache_clear()
    assert directory.stat().st_mode & 0o077 == 0
    assert len(caplog.records) == 1
    assert "XDG_CACHE_HOME" in caplog.text and str(in_the_way) in caplog.text


@pytest.mark.turns(3, part=1)
def test_a_broker_never_waits_and_loads_what_it_was_asked_for(compiled: Path, tmp_path: Path) -> None:
    shutil.copytree(compiled, tmp_path, dirs_exist_ok=True)
    program = (
        "import queue, types; from lading.kernels import engine; twin = types.ModuleType('twin')\n"
        "engine.mark_complete()\n"
        "loading, load = queue.SimpleQueue(), engine.load\n"
        "go_on = queue.SimpleQueue()\n"
        "engine.load = lambda home: (loading.put(home), go_on.get(), load(home), loading.put(home))\n"
        "engine.USED_BY_ALL = ()\n"
        "engine.load_in_background()\n"
        f"twins = [engine.select('{SMALLEST}', twin, size) is twin for size in (1, 1 << 30)]\n"
        f"print(*twins, loading.get(timeout=60), engine.get_loaded('{SMALLEST}'), engine.is_loading())\n"
        "go_on.put(None); loading.get(timeout=60)\n"
        f"print(engine.select('{SMALLEST}', twin, 1).__name__, engine.is_loading(), engine.count_loaded())\n"
        "print(loading.empty())"
    )
    assert run(program, tmp_path).splitlines() == [f"True True {SMALLEST} None True", f"{SMALLEST} False 1", "True"]


def test_a_process_that_ends_early_leaves_no_compiler_behind(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from lading.kernels import engine\n"
        "engine.load_in_background()\n"
        "started, tasks = [], Path('/proc/self/task')\n"
        "while not started and engine._background.is_alive():\n"
        "    started = [pid for path in tasks.glob('*/children') for pid in path.read_text().split()]\n"
        "print(*started)"
    )
    # the end of its streams is waited for too: a compiler that held one would be waited for
    compiler = Path("/proc", run(program, tmp_path), "stat")
    until = time.monotonic() + 30
    while compiler.exists() and compiler.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < until, compiler
    assert not list(tmp_path.rglob("complete"))


def test_without_a_compiler_the_twins_serve(tmp_path: Path) -> None:
    program = (
        "import logging; logging.basicConfig(format='%(message)s')\n"
        "from lading.kernels import engine\n"
        "engine.sys.executable = '/nonexistent/python'\n"
        "engine.load_in_background(); engine._background.join()\n"
        f"print(engine.get_loaded('{SMALLEST}'))"
    )
    assert run(program, tmp_path) == "None"


def test_ready_gives_no_half_imported_module() -> None:
    sys.modules["lading.half"] = types.ModuleType("lading.half")
    try:
        assert engine.get_loaded("lading.half") is None
    finally:
        del sys.modules["lading.half"]


@pytest.mark.full
def test_a_cpu_without_the_instructions_gives_the_same_bytes(full: bool, tmp_path: Path) -> None:
    if not full:
        pytest.skip("compiles everything anew; make test-full runs it")
    tests = Path(__file__).parents[1] / "dialects" / "test_iggy_classic_send.py"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    command = [sys.executable, "-m", "pytest", "-q", str(tests), str(tests.parents[1] / "chunk")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, cwd=tests.parents[2])
    assert done.returncode == 0, done.stdout
