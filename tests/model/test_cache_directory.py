"""The directory in the user's cache: by its variable, else in the home directory, and worked out in one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from lading.model import cache_directory
from lading.model.cache_directory import VARIABLE, find_cache_directory

SOURCE = Path(__file__).parents[2] / "src" / "lading"


def test_it_is_in_the_cache_that_the_user_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(VARIABLE, "/var/tmp/cache")
    assert find_cache_directory() == Path("/var/tmp/cache/lading")
    assert find_cache_directory("/elsewhere") == Path("/elsewhere/lading")
    for unnamed in ("", None):
        monkeypatch.setenv(VARIABLE, "")
        if unnamed is None:
            monkeypatch.delenv(VARIABLE)
        assert find_cache_directory() == tmp_path / ".cache" / "lading"


def test_no_other_module_works_it_out() -> None:
    """Five did, each in its own way."""
    (name,) = [path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if '"~/.cache"' in path.read_text()]
    assert name == cache_directory.__name__.removeprefix("lading.").replace(".", "/") + ".py"
