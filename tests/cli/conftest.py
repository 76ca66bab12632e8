"""The command line against one real broker for each file of tests: as a process, or in this one."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from lading import testing
from lading.cli.main import main
from tests import forked_command


class Done(NamedTuple):
    """What a command said."""

    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.BrokerProcess]:
    with testing.broker() as running:
        yield running


@pytest.fixture
def process(broker: testing.BrokerProcess) -> Run:
    """The command as a process, forked from one that has imported what commands import."""

    def run(*arguments: str, stdin: str = "", code: int = 0, **environment: str) -> Done:
        done = forked_command.run(
            [sys.executable, "-m", "lading.cli.main", *arguments],
            input=stdin,
            timeout=90,
            env=os.environ | {"LADING_SERVER": broker.url, "NO_COLOR": "1"} | environment,
        )
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.stdout, done.stderr)

    return run


@pytest.fixture
def lading(
    broker: testing.BrokerProcess,
    process: Run,
    full: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """The command in this process, which has loaded all it needs; as a process with LADING_TEST_FULL=1."""

    def run(*arguments: str, stdin: str = "", code: int = 0, **environment: str) -> Done:
        if full or arguments[0] == "serve":
            return process(*arguments, stdin=stdin, code=code, **environment)
        capsys.readouterr()
        with monkeypatch.context() as here, pytest.raises(SystemExit) as ended:
            for name, value in {"LADING_SERVER": broker.url, "NO_COLOR": "1", **environment}.items():
                here.setenv(name, value)
            here.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
            main(arguments)
        done = Done(*capsys.readouterr())
        assert (ended.value.code or 0) == code, f"{arguments}: {ended.value.code}\n{done.stdout}\n{done.stderr}"
        return done

    return run


def documents(done: Done) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]
