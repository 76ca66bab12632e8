"""Kernels from files: what is read is what was written, beside Numba, before and after it, and nothing else is run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lading.kernels import engine, machine_code
from tests import kernel_arguments

HOME = "lading.chunk.kernels"
CRC32C = 0xE3069283
"""Of the digits 1 to 9, as its specification gives it (RFC 3720 has others)."""
DIGITS = "np.frombuffer(b'123456789', np.uint8)"


@pytest.fixture(scope="module")
def written() -> Path:
    """The file of a home, in a cache that this process has filled."""
    engine.load(HOME)
    return engine.cache_dir() / f"{HOME}{machine_code.SUFFIX}"


def run(program: str) -> str:
    command = [sys.executable, "-c", f"import sys, numpy as np; from lading.kernels import engine\n{program}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout.strip()


def test_what_is_read_is_what_was_written(written: Path, tmp_path: Path) -> None:
    kernels = machine_code.read_kernels(written)
    assert kernels and [kernel.name for kernel in kernels] == ["crc32c", "seal", "check", "walk", "find_flipped_bit"]
    machine_code.write_kernels(tmp_path / "copy", kernels)
    assert machine_code.read_kernels(tmp_path / "copy") == kernels
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_a_file_that_is_not_as_it_was_written_is_not_run(written: Path, tmp_path: Path) -> None:
    """A power cut leaves zeros, a full disk a part, a bad one another bit."""
    whole, path = written.read_bytes(), tmp_path / "kernels"
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for data in (b"", whole[:-1], bytes(len(whole)), whole + b"x", bytes(flipped)):
        path.write_bytes(data)
        assert machine_code.read_kernels(path) is None
    assert machine_code.read_kernels(tmp_path / "nothing") is None


def test_what_could_not_be_read_is_compiled_and_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = "lading.kernels.sync"
    monkeypatch.setattr(engine, "cache_dir", lambda: tmp_path)
    path = tmp_path / f"{home}{machine_code.SUFFIX}"
    path.write_bytes(b"torn")
    assert callable(engine._load(home).sync_rounds)
    assert machine_code.read_kernels(path)


def test_a_full_disk_costs_the_file_and_not_the_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(path: Path, kernels: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(engine, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(machine_code, "write_kernels", fail)
    assert callable(engine._load("lading.kernels.sync").sync_rounds)
    assert "No space left" in caplog.text and str(tmp_path) in caplog.text


def test_a_symbol_that_is_nowhere_is_an_error_and_not_the_end_of_the_process(written: Path) -> None:
    kernels = machine_code.read_kernels(written)
    assert kernels
    strange = kernels[0]._replace(imports=("NRT_of_another_release",))
    with pytest.raises(ImportError, match=f"{HOME}: nothing in this process is called NRT_of_another_release"):
        machine_code.link_kernels(HOME, [strange])


@pytest.mark.parametrize("first", ["numba", "kernels"])
@pytest.mark.turns(2)
def test_numba_works_beside_kernels_whichever_comes_first(written: Path, first: str) -> None:
    numba = """
import numba
@numba.njit("int64(uint8[::1])")
def add(data):
    if data.size > 9:
        raise ValueError("too long")
    return data.sum()
"""
    kernels = f"kernels = engine.load('{HOME}')\n"
    parts = [numba, kernels] if first == "numba" else [kernels, numba]
    program = (
        "".join(parts)
        + f"""
digits = {DIGITS}.copy()
print(add(digits), kernels.crc32c(digits, 0, 9))
try:
    add(np.zeros(10, np.uint8))
except ValueError as error:
    print(error)
"""
    )
    assert run(program).splitlines() == [f"{sum(b'123456789')} {CRC32C}", "too long"]


def test_errors_of_arguments_are_pythons(written: Path) -> None:
    program = f"""
kernels, digits = engine.load('{HOME}'), {DIGITS}
wide = np.zeros(2, np.int64)
for arguments in ((digits, 0), (5, 0, 9), (digits, 0, 1 << 70), (digits, "a", 9), (wide, 0, 8)):
    try:
        kernels.crc32c(*arguments)
    except Exception as error:
        print(type(error).__name__)
print(kernels.crc32c(digits, 0, 9))
"""
    assert run(program).split() == ["TypeError", "TypeError", "OverflowError", "ValueError", "TypeError", str(CRC32C)]


def test_tests_check_arguments_for_the_kernels() -> None:
    checksum = engine.load(HOME).crc32c
    digits = np.frombuffer(b"123456789", np.uint8)
    assert checksum(digits, 0, 9) == CRC32C
    strange = (digits.view(np.int8), digits.reshape(3, 3), digits[::2], digits.tobytes(), None)
    for value in strange:
        with pytest.raises(TypeError, match=r"lading\.chunk\.kernels\.crc32c: argument 0"):
            checksum(value, 0, 9)
    with pytest.raises(TypeError, match="argument 1"):
        checksum(digits, 0.5, 9)
    with pytest.raises(TypeError, match="3 arguments"):
        checksum(digits, 0)


def test_what_is_written_has_to_be_writable() -> None:
    (kind,) = kernel_arguments.parse_arguments("(Array(int64, 2, 'C', False, aligned=True)) -> int64")
    table = np.zeros((2, 3), np.int64)
    assert kind.takes(table)
    table.flags.writeable = False
    assert not kind.takes(table)


def test_a_kernel_that_no_file_can_hold_is_refused() -> None:
    signature = pytest.importorskip("lading.kernels.signature")
    library = SimpleNamespace(
        serialize_using_object_code=lambda: ("", "object", (b"", b"")), has_dynamic_globals=True,
        _final_module=SimpleNamespace(global_variables=[], functions=[]),
    )  # fmt: skip
    result = SimpleNamespace(library=library, signature="() -> int64")
    dispatcher = SimpleNamespace(
        __name__="odd", __module__="lading.odd", compile=lambda signature: None, overloads={(): result}
    )
    with pytest.raises(TypeError, match=r"lading\.odd\.odd refers to an object of this process"):
        signature._compile(dispatcher, "int64()")
