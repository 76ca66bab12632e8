"""Ctrl-C while Spark starts and works: at once, without stacks, and nothing is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lading.cli.interruption import EXIT_CODE, Interruption
from lading.spark import java, jvm

pytestmark = pytest.mark.timeout(120)
WAITING = """
import os, signal, sys, threading, time
from lading.cli.interruption import Interruption

def cut_off():
    # as a call to the JVM does that notices nothing
    threading.Event().wait()

interruption = Interruption()
with interruption.install():
    print("ready", flush=True)
    {work}
"""


def interrupted(work: str, times: int) -> subprocess.CompletedProcess[str]:
    """A process that is interrupted ``times`` while it does ``work``."""
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING.format(work=work)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    out, error = process.communicate(timeout=30)
    return subprocess.CompletedProcess(process.args, process.returncode, out, error)


def test_a_wait_is_interrupted_and_not_what_it_waits_for() -> None:
    work = "try: interruption.run_interruptibly(cut_off)\n    except KeyboardInterrupt: sys.exit(7)"
    done = interrupted(work, 1)
    assert (done.returncode, done.stderr) == (7, "")


def test_the_second_one_ends_the_process_where_it_stands() -> None:
    done = interrupted("interruption._asked = True; cut_off_too = time.sleep(60)", 2)
    assert (done.returncode, done.stderr) == (EXIT_CODE, "")


def test_what_is_waited_for_may_fail() -> None:
    with Interruption().install() as interruption:
        assert interruption.run_interruptibly(lambda: 4711) == 4711
        with pytest.raises(ZeroDivisionError):
            interruption.run_interruptibly(lambda: 1 // 0)


@pytest.mark.parametrize("came", [True, False])
def test_a_jvm_that_is_gone_needs_no_stop(came: bool) -> None:
    class Gone:
        def stop(self) -> None:
            raise ConnectionRefusedError

    interruption = Interruption()
    interruption.is_requested = came
    with pytest.raises(KeyboardInterrupt if came else ConnectionRefusedError), interruption.spark("test"):
        interruption._spark = Gone()  # type: ignore[assignment]
        interruption.check()


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interruption().install():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


@pytest.fixture
def endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], subprocess.Popen[bytes]]:
    """Starts something through the shim that takes no notice, as a JVM that waits for its driver."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program = tmp_path / "endless"
    program.write_text("#!/bin/sh\ntrap '' INT TERM\nsleep 60 & wait\n")
    program.chmod(0o755)
    shim = java.shim_home(program, 17) / "bin" / "java"
    return lambda: subprocess.Popen([shim])


def test_a_start_that_is_given_up_leaves_nothing(endless: Callable[[], subprocess.Popen[bytes]]) -> None:
    with jvm.starting():
        note = Path(os.environ[java.NOTED])
        process = endless()
        while not (note.exists() and note.read_text()):
            time.sleep(0.01)
        jvm.kill_starting_jvms()
        assert process.wait(10) == -signal.SIGKILL
        # one that a script reaches only now finds nobody
        assert endless().wait(10) == 1
    assert java.NOTED not in os.environ


@pytest.mark.parametrize("earlier", [None, "of an earlier session"])
def test_a_start_that_fails_leaves_nothing(
    endless: Callable[[], subprocess.Popen[bytes]], earlier: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a process that had a session before: PySpark keeps the connection to its JVM."""
    monkeypatch.setattr(pytest.importorskip("pyspark").SparkContext, "_gateway", earlier)
    with pytest.raises(ZeroDivisionError), jvm.starting():
        process = endless()
        noted = Path(os.environ[java.NOTED])
        # it is there an instant before the number is in it
        while not (noted.exists() and noted.read_text().strip()):
            time.sleep(0.01)
        _ = 1 // 0
    assert process.wait(10) == -signal.SIGKILL


@pytest.mark.spark
def test_an_interrupted_start_of_spark_leaves_no_jvm(tmp_path: Path) -> None:
    """PySpark alone would leave it waiting forever."""
    script = (
        # whoever started the tests in the background of a shell has them ignore it
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from lading.spark import session\ntry: session()\nexcept KeyboardInterrupt: print('interrupted')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env={name: text for name, text in os.environ.items() if name != "JDK_JAVA_OPTIONS"} | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until = time.monotonic() + 180
    while not (pids := _noted(tmp_path)) and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=180)
    assert (out, error) == ("interrupted\n", "")
    assert not list(tmp_path.glob("lading-jvm-*"))
    assert pids
    # it was told to end; when it has, is the system's matter
    until = time.monotonic() + 30
    while any(map(_runs, pids)):
        assert time.monotonic() < until
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    """Whether there is such a process that has not ended: one that nobody has waited for has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _noted(directory: Path) -> list[int]:
    return [int(text) for note in directory.glob("lading-jvm-*/pid") if (text := note.read_text().strip())]
