"""Commands and programs of tests as forks of one process that has imported what commands import.

A start of ``lading`` takes 0.6 to 1.6 s of CPU for imports, and a run of the tests starts some hundreds. ``run`` has
the warm process fork instead, as ``tests/forked_broker.py`` does for brokers: the child has its own arguments,
environment, directory and streams, and nothing that another one changed. What a start itself does is tested by real
starts: ``tests/test_imports.py``, ``tests/cli/test_interruption.py``. ``LADING_TEST_FORK=0`` starts everything afresh,
and so does an environment that Python or an import would have read.
"""

from __future__ import annotations

import io
import os
import pkgutil
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Final

from tests.forked_broker import ForkedBroker, WarmProcess, run_and_exit, serve_forks

IMPORTED: Final = ("cli", "client", "transports", "tables", "pipeline")
"""Rooms whose modules commands import."""
SHOWING: Final = ("lading.cli.main", "lading.cli.demo", "rich.markdown", "rich.traceback", "typer.rich_utils")
"""What a help text, or an error of its usage, has a command import."""
LEFT_OUT: Final = (
    "kernels", "iceberg", "delta", "demo", "flights", "cli.console", "cli.main", "cli.serve", "cli.prepared_serve",
    "pipeline.sql", "pipeline.plots", "tables.query", "__main__",
)  # fmt: skip
"""Endings and parts of names: those that take long, or bring packages that few commands use."""
READ_AT_START: Final = (
    "PYTHON",
    "LC_",
    "LANG",
    "OPENBLAS",
    "ARROW",
    "NUMBA",
    "MALLOC",
    "LD_",
    "LADING_KERNELS",
    "XDG_CACHE",
)
"""Beginnings of variables that Python reads when it starts, or an import."""


class ForkedCommand(ForkedBroker):
    """A command that is forked from its warm process instead of executed."""

    module: ClassVar = "tests.forked_command"
    warm: ClassVar[WarmProcess | None] = None


def run(
    command: Sequence[str],
    *,
    input: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout: float,
) -> subprocess.CompletedProcess[str]:
    """Run a command of Python as ``subprocess.run`` does with ``capture_output`` and ``text``."""
    streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start(command, env=env, cwd=cwd, **streams) as process:
        try:
            stdout, stderr = process.communicate(input or "", timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def start(
    command: Sequence[str], *, env: Mapping[str, str] | None = None, text: bool = True, **streams: Any
) -> subprocess.Popen[Any]:
    """Start a command of Python as ``Popen`` does."""
    environment = dict(os.environ if env is None else env)
    if is_forkable(command, environment):
        return ForkedCommand([str(word) for word in command], env=environment, text=text, **streams)
    return subprocess.Popen(command, env=environment, text=text, **streams)


def is_forkable(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a fork does the same as a start of its own would do."""
    warm = ForkedCommand.warm
    imported_with = os.environ if warm is None else warm.environment
    return (
        command[0] == sys.executable
        and command[1] in ("-m", "-c")
        and _list_early(environment) == _list_early(imported_with)
        and os.environ.get("LADING_TEST_FORK") != "0"
    )


def _list_early(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_AT_START) and name != "PYTHONUNBUFFERED"
    }


def _import_commands() -> None:
    for room in IMPORTED:
        package = import_module(f"lading.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"lading.{room}."):
            if not any(part in module.name for part in LEFT_OUT):
                import_module(module.name)
    for name in SHOWING:
        import_module(name)


def _open_streams() -> None:
    """Give this process streams over its own descriptors, as Python does when it starts."""
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r", closefd=False)), encoding="utf-8")
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for name, descriptor, errors in (("stdout", 1, "strict"), ("stderr", 2, "backslashreplace")):
        binary = io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False))
        text = io.TextIOWrapper(
            binary, encoding="utf-8", errors=errors, line_buffering=name == "stderr", write_through=unbuffered
        )
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)


def _run_command(command: list[str]) -> None:
    kind, program, *arguments = command[1:]
    sys.argv = ["-c" if kind == "-c" else program, *arguments]
    if kind == "-c":
        module = ModuleType("__main__")
        sys.modules["__main__"] = module
        exec(compile(program, "<string>", "exec"), vars(module))
    elif program == "lading.cli.main":
        from lading.cli.main import main as lading

        lading()
    else:
        runpy.run_module(program, run_name="__main__", alter_sys=True)


def main() -> None:
    """Be the warm process; in each fork, be a command."""
    command = serve_forks(_import_commands)
    if command is not None:
        _open_streams()
        run_and_exit(lambda: _run_command(command))


if __name__ == "__main__":
    main()
