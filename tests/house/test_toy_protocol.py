"""Adding a protocol takes its own files and a line in each of three others.

A protocol inside of the package has one more, its name in the layers of ``lading.endpoints`` in pyproject.toml.

The toy of ``toy_protocol`` is added to a fresh process, and to the broker that it starts: it is then one of the
protocols of the behaviour suite, by which its headers come typed out of every other protocol's reader, and back.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from tests import case_turns
from tests.house.toy_protocol.edits import EDITS

ROOT: Final = Path(__file__).parents[2]
SITE: Final = Path(__file__).parent / "toy_protocol" / "site"
PATHS: Final = os.pathsep.join((str(SITE), str(ROOT / "src"), str(ROOT)))
# as a plugin of pytest, Lading is a package whose modules pytest loads by itself to rewrite their assertions: unedited
PYTEST: Final = ("-m", "pytest", "-p", "no:cacheprovider", "--assert=plain")
PASSED: Final = re.compile(r"(\d+) passed")


def run_with_toy(*arguments: str) -> str:
    """Output of a Python that has the toy; AssertionError with what it wrote if it fails."""
    # the toy meets our client of each protocol, in both directions
    environment = {**os.environ, "PYTHONPATH": PATHS, "LADING_TEST_BEHAVIOURS_OF": "python-toy"}
    # whole each day: one protocol, and the only test of a new one
    environment.pop(case_turns.DAY, None)
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-8_000:]
    return done.stdout


def test_three_lines_are_edited() -> None:
    assert len(EDITS) == 3
    for name, edit in EDITS.items():
        spec = find_spec(name)
        assert spec is not None and spec.origin is not None
        before = Path(spec.origin).read_text()
        after = edit.apply(before)
        assert [line for line in after.splitlines() if line not in before.splitlines()] == [edit.line]
        assert len(edit.line) <= 120


def test_nothing_else_knows_the_toy() -> None:
    mentions = [path for path in (ROOT / "src").rglob("*.py") if re.search(r"\btoy\b", path.read_text(), re.IGNORECASE)]
    assert mentions == []


def test_the_rows_hold_with_the_toy_among_them() -> None:
    general = "loaded or tables_of_the_settings or readers_get or port_of_a_scheme or only_sums or explained"
    run_with_toy(*PYTEST, "tests/dialects/test_protocols.py", "-k", general)


@pytest.mark.timeout(400)
def test_the_toy_behaves_as_all_protocols_do() -> None:
    routes = "lading-python-toy or lading-from-python-toy or (lading-from and to-python-toy)"
    said = run_with_toy(*PYTEST, "tests/behaviours", "-k", routes)
    found = PASSED.search(said)
    assert found is not None and int(found[1]) > 100, said[-4_000:]


FOREIGN: Final = """
import subprocess, sys
from lading import Consumer, testing

with testing.broker(sys.argv[1]) as broker:
    client = ["perl", sys.argv[2], broker.endpoints["toy"], "t"]
    print(subprocess.run(client, check=True, capture_output=True, text=True, timeout=30).stdout, end="")
    with Consumer(broker.url, ["t"], start="earliest") as consumer:
        (message,) = consumer.poll(timeout_s=20, max_messages=1)
        print(message.headers.last("gate"), message.payload)
"""


@pytest.mark.skipif(shutil.which("perl") is None, reason="there is no Perl")
def test_a_client_in_another_language_is_served(tmp_path: Path) -> None:
    said = run_with_toy("-c", FOREIGN, str(tmp_path / "data"), str(SITE.parent / "client.pl"))
    assert said.splitlines() == ["0 1 gate 10 513 from Perl", "gate = uint16: 513 b'from Perl'"]
