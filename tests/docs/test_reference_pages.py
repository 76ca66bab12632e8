"""The reference pages of commands, settings and metrics say what the code says."""

from __future__ import annotations

import subprocess
import sys

from tests.docs.test_snippets import ROOT


def test_the_pages_are_those_that_are_written_from_the_code() -> None:
    program = [sys.executable, str(ROOT / "packaging" / "reference_pages.py"), "--check"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


def test_every_page_of_the_reference_tells_where_it_is_written() -> None:
    marked = {page.name for page in (ROOT / "docs").rglob("*.md") if "written by `make reference`" in page.read_text()}
    whole = {"commands.md", "command-line.md", "settings.md", "metrics.md"}
    # tables in pages that are written by hand else
    in_part = {"performance.md", "iggy-differences.md", "kafka.md", "nsq.md"}
    assert marked == whole | in_part
