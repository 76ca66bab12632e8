"""The tests that the page about testing shows pass, run by pytest with the plugin."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from lading.settings.loading import load
from tests.docs.test_snippets import ROOT, snippets

PAGE: Final = ROOT / "docs" / "how-to" / "testing.md"


def files() -> dict[str, str]:
    """The files that the page shows, by the name in their first line."""
    first = {snippet.text.splitlines()[0]: snippet.text for snippet in snippets(PAGE)}
    return {line.removeprefix("# "): text for line, text in first.items() if line.startswith("# ")}


@pytest.mark.turns(2, part=1)
def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    shown = files()
    names = [name for name in shown if name.startswith("test_")]
    assert len(names) == 6
    for name in names:
        (tmp_path / name).write_text(shown[name])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "lading.pytest_plugin", "-p", "no:lading"],
        cwd=tmp_path, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout


JAVA_MAIN: Final = """
class Main {
    public static void main(String[] arguments) throws Exception {
        try (LadingBroker broker = new LadingBroker(java.nio.file.Path.of(arguments[0]))) {
            System.out.println(broker.address("kafka"));
            String[] place = broker.address("kafka").split(":");
            new java.net.Socket(place[0], Integer.parseInt(place[1])).close();
            try {
                broker.address("rabbit");
            } catch (IllegalArgumentException expected) {
                System.out.println("refused " + expected.getMessage());
            }
        }
        System.out.println("ended");
    }
}
"""


def test_the_java_class_of_the_page_starts_a_broker(full: bool, tmp_path: Path) -> None:
    if not full:
        pytest.skip("starts a JVM and a broker: only with LADING_TEST_FULL=1")
    java = shutil.which("java")
    if java is None:
        pytest.skip("there is no Java")
    found = re.search(r"^```java\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    # the first class of a file that is run as it is has the main method
    imports, _, rest = found[1].partition("public class LadingBroker")
    file = tmp_path / "Main.java"
    file.write_text(f"{imports}{JAVA_MAIN}class LadingBroker{rest}")
    command = tmp_path / "bin" / "lading"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m lading.cli.main "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [java, str(file), str(tmp_path / "data")], capture_output=True, text=True, timeout=110, check=False,
        env=os.environ | {"PATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    address, refused, ended = done.stdout.splitlines()
    assert address.startswith("127.0.0.1:")
    assert (refused, ended) == ("refused rabbit", "ended")


def test_the_settings_of_the_page_exist() -> None:
    names: dict[str, object] = {}
    exec(compile(files()["conftest.py"], "conftest.py", "exec"), names)
    options = names["lading_broker_options"].__wrapped__()  # type: ignore[attr-defined]
    assert load(None, [f"{key}={value}" for key, value in options["settings"].items()], {})
