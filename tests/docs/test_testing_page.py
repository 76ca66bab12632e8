"""The tests that the page about testing shows pass, run by pytest with the plugin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from lading.settings_loading import load
from tests.docs.test_snippets import ROOT, snippets

PAGE: Final = ROOT / "docs" / "how-to" / "testing.md"


def files() -> dict[str, str]:
    """The files that the page shows, by the name in their first line."""
    first = {snippet.text.splitlines()[0]: snippet.text for snippet in snippets(PAGE)}
    return {line.removeprefix("# "): text for line, text in first.items() if line.startswith("# ")}


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


def test_the_settings_of_the_page_exist() -> None:
    names: dict[str, object] = {}
    exec(compile(files()["conftest.py"], "conftest.py", "exec"), names)
    options = names["lading_broker_options"].__wrapped__()  # type: ignore[attr-defined]
    assert load(None, [f"{key}={value}" for key, value in options["settings"].items()], {})
