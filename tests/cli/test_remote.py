"""``lading pipeline run --remote``: what cannot run on a Spark Connect server is refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Run

PIPELINE = """
[pipeline]
id = "remote_refused"
[source]
from = "lading://127.0.0.1:1"
topic = "remote_refused"
[good]
to = "parquet:./good"
"""
STEP = """
[[step]]
sql = "SELECT * FROM messages"
"""


@pytest.mark.parametrize(
    ("options", "text", "sentence"),
    [
        (("--local",), PIPELINE, "--remote and --local: both say where the work is done; give one of them"),
        ((), PIPELINE + STEP, "has SQL steps, which need a session with a JVM of its own"),
    ],
)
def test_remote_refuses(lading: Run, tmp_path: Path, options: tuple[str, ...], text: str, sentence: str) -> None:
    (tmp_path / "remote.toml").write_text(text)
    arguments = ("pipeline", "run", str(tmp_path / "remote.toml"), "--remote", "sc://127.0.0.1:1", *options)
    done = lading(*arguments, code=2)
    assert sentence in done.stderr


def test_an_error_does_not_show_the_token_of_the_url(lading: Run, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    (tmp_path / "remote.toml").write_text(PIPELINE + STEP)
    for place in ("", "elsewhere"):
        url = f"sc://127.0.0.1:1/{place};token=s3cr3t"
        said = lading("pipeline", "run", str(tmp_path / "remote.toml"), "--remote", url, code=2).stderr
        assert "--remote sc://127.0.0.1:1" in said
        assert "s3cr3t" not in said
