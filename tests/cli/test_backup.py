"""``lading backup`` and ``lading restore``: what they print, what they refuse, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lading.cli.main import main
from tests.broker.room import fill, opened, topic_of


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(one) for one in arguments])
    return int(ended.value.code or 0)


def test_a_backup_and_a_restore(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, place = tmp_path / "data", tmp_path / "backups"
    broker = opened(data)
    fill(broker, topic_of(broker).partition(0), 5)
    broker.stop()
    assert run("backup", data, place, "--output", "json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["messages"], said["partitions"], said["damage"]) == (5, 1, [])
    assert said["copied_bytes"] == said["size_bytes"] > 0 == said["kept_bytes"]
    assert run("restore", place, "--list", "--output", "json") == 0
    assert [one["point"] for one in map(json.loads, capsys.readouterr().out.splitlines())] == [said["point"]]
    assert run("restore", f"file://{place}", tmp_path / "restored", "--point", said["point"]) == 0
    assert "restored" in capsys.readouterr().err
    assert run("restore", place, tmp_path / "restored") == 2
    assert "a restore overwrites nothing" in capsys.readouterr().err
    (archive,) = place.glob("points/*.tar")
    archive.write_bytes(archive.read_bytes()[:3_000])
    assert run("restore", place, "--check", "--output", "json") == 1
    assert json.loads(capsys.readouterr().out)["damage"] != []


def test_old_backups_go_when_that_is_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, place = tmp_path / "data", tmp_path / "backups"
    broker = opened(data)
    fill(broker, topic_of(broker).partition(0), 5)
    broker.stop()
    names = []
    for words in (["backup"], ["backup", "create"], ["backup", "--output", "json"]):
        assert run(*words, data, place, *(["-o", "json"] if len(words) < 3 else [])) == 0
        names.append(json.loads(capsys.readouterr().out)["point"])
    assert run("backup", "prune", place) == 2
    assert "nothing says what stays; give --keep N" in capsys.readouterr().err
    assert run("backup", "prune", place, "--keep", "1", "--dry-run", "-o", "json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["removed"], plan["kept"], plan["dry_run"]) == (names[:2], names[2:], True)
    assert run("backup", "prune", place, "--keep", "1") == 2
    said = capsys.readouterr().err
    assert f"backup {names[0]} would be deleted" in said and "Not a terminal, cannot ask; pass --yes." in said
    assert len(list(place.glob("points/*"))) == 6
    assert run("backup", "prune", f"file://{place}", "--newer-than", "30d", "--yes", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["removed"] == []
    assert run("backup", "prune", place, "--newer-than", "0s", "--keep", "2", "--yes") == 0
    assert "1 backup and 0 segments deleted" in capsys.readouterr().err
    assert sorted(path.stem for path in place.glob("points/*.json")) == names[1:]
    assert run("restore", place, tmp_path / "restored", "--point", names[1]) == 0


def test_what_cannot_be_backed_up_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("backup", "lading://127.0.0.1:7070", tmp_path) == 2
    assert "is a broker; name its data directory" in capsys.readouterr().err
    assert run("backup", tmp_path, "nosuch://bucket") == 2
    assert "name a directory or a bucket" in capsys.readouterr().err
    assert run("restore", tmp_path / "nothing", tmp_path / "new") == 2
    assert "holds no finished backup" in capsys.readouterr().err
    assert not (tmp_path / "nothing").exists()
