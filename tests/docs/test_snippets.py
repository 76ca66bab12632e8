"""Every snippet of the README and of docs/ runs, in its page's order, against a real broker."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from lading import testing
from tests.interop import kafka_broker

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(python|sh|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


KAFKA = "127.0.0.1:9092"
"""Where the pages have a real Kafka broker."""


class Snippet(NamedTuple):
    """One fenced block: its language, its text, and the line it begins at."""

    language: str
    text: str
    line: int


def snippets(page: Path) -> list[Snippet]:
    text = page.read_text()
    return [Snippet(found[1], found[2], text[: found.start()].count("\n") + 2) for found in FENCE.finditer(text)]


def test_there_are_snippets_to_run() -> None:
    assert sum(len(snippets(page)) for page in PAGES) >= 8


def _real_kafka(stack: ExitStack, directory: Path) -> str:
    try:
        return stack.enter_context(kafka_broker.running(directory)).address
    except kafka_broker.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "page", [page for page in PAGES if snippets(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_page(page: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        broker = stack.enter_context(testing.broker(data_dir=tmp_path / "log"))
        addresses = {
            "127.0.0.1:7070": broker.endpoints["admin"],
            "127.0.0.1:8090": broker.endpoints["iggy_tcp"],
            "127.0.0.1:3000": broker.endpoints["iggy_http"],
        }
        if any(KAFKA in snippet.text for snippet in snippets(page)):
            addresses[KAFKA] = _real_kafka(stack, tmp_path / "kafka")
        # one interpreter a page, so that later blocks may use what earlier ones made
        script: list[str] = ["import subprocess"]
        for snippet in snippets(page):
            text = snippet.text
            for written, real in addresses.items():
                text = text.replace(written, real)
            if snippet.language == "toml":
                # a file whose name is the comment in its first line
                name = text.splitlines()[0].removeprefix("# ")
                assert name.endswith(".toml"), f"{page.name}: the first line of a TOML block names its file"
                script.append(f"open({name!r}, 'w').write({text!r})")
            elif snippet.language == "python":
                script.append(f"# {page.name} line {snippet.line}\n{text}")
            else:
                for line in text.replace("\\\n", " ").splitlines():
                    if line.strip() and not line.startswith("#"):
                        command = [sys.executable, "-m", "lading.cli.main", *shlex.split(line)[1:]]
                        assert shlex.split(line)[0] == "lading", f"{page.name}: only lading commands are run: {line}"
                        script.append(f"subprocess.run({command!r}, check=True)")
        done = subprocess.run(
            [sys.executable, "-c", "\n".join(script)],
            cwd=tmp_path,
            env=os.environ | {"LADING_SERVER": broker.url, "PYTHONUNBUFFERED": "1"},
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, f"{page.name}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
