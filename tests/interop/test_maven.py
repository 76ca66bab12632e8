"""Jars that cannot be fetched are a sentence, so that what needs them is skipped or not measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop import maven


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("exec sleep 30", r"the jars of none cannot be fetched: mvn did not end within 0\.2 s"),
        ("echo '[ERROR] no such artefact'; exit 1", r"the jars of none cannot be fetched: .*no such artefact"),
    ],
)
def test_a_fetch_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, told: str) -> None:
    program = tmp_path / "mvn"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(maven, "FETCH_TIMEOUT_S", 0.2 if "sleep" in does else maven.FETCH_TIMEOUT_S)
    with pytest.raises(maven.Unavailable, match=told):
        maven.fetched("none", ["none:none:1"])
    assert not (tmp_path / "cache/lading/none/complete").exists()
