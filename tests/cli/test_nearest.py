"""A mistaken command line names the nearest command, option or target that works."""

from __future__ import annotations

from pathlib import Path

import pytest

from lading.cli.main import main


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("poll flights", "'lading message poll'"),
        ("consume flights", "'lading message poll'"),
        ("message read flights", "'lading message poll'"),
        ("message headers flights", "'lading headers'"),
        ("list", "'lading topic list'"),
        ("redrive flights.toml", "'lading quarantine redrive'"),
        ("serv", "'serve'"),
        ("topic lst", "'list'"),
        ("message send flights x --from lading://127.0.0.1:7070", "--server"),
        ("message send flights x --transport tls=true", "--transport belongs before the command: lading --transport …"),
        ("topic list --profile lab", "--profile belongs before the command: lading --profile … "),
        ("message poll flights --limit 3", "(Possible options: --count)"),
        ("message poll flights -c 3", "(Possible options: --count)"),
        ("message poll --topic flights", "TOPIC as an argument"),
        ("message tail flights --tail 3", "--offset -10"),
        ("topic list --json", "--output json"),
        ("serve --port 9092", "--set endpoints.NAME.address=HOST:PORT"),
        ("topic list --port 9092", "--from, --server)"),
        ("message poll flights --host here", "--from, --server)"),
        ("topic list -o yaml", "Invalid value for '--output' / '-o': 'yaml' is not one of 'text', 'json'"),
        ("message poll flights -n abc", "'abc' is not a whole number"),
        ("message poll flights -n 0", "0 is too small; use 1 or more"),
        ("cert . --days 4000", "4000 is too large; use 3650 or less"),
        ("message poll", "Usage: lading message poll [OPTIONS] TOPIC Try"),
        ("message send", "Usage: lading message send [OPTIONS] TOPIC [PAYLOAD] Try"),
        ("acl add ann reed flights", "Usage: lading acl add [OPTIONS] USER OPERATION [NAME] Try"),
        ("acl add ann reed flights", "Invalid value for 'OPERATION': 'reed' is not one of all, describe, read,"),
        ("topic set flights", "Usage: lading topic set [OPTIONS] NAME KEY=VALUE... Try"),
        ("profile ./data flights --from lading://127.0.0.1:7070", "the source is given twice"),
        ("profile ./data flights more", "expected TOPIC, or the source and then TOPIC, not './data flights more'"),
        ("spool flights", "expected TOPIC DIRECTORY, or the source and then TOPIC DIRECTORY"),
        ("ingest flights hdfs://host/flights", '.writeStream.format("parquet").start("hdfs://host/flights")'),
        ("ingest flights ./table --state s3://bucket/state", "name a directory"),
        ("serve --data s3://bucket/data", "name a directory of this machine"),
        ("demo --dir s3://bucket/demo", "name a directory of this machine"),
        ("spool nsq://127.0.0.1:1 flights s3://bucket/spool", "name a directory of this machine"),
        ("doctor --data s3://bucket/data", "name a directory of this machine"),
        ("topic list --from s3://bucket/data", "lading://127.0.0.1:7070"),
    ],
)
def test_what_was_meant_is_named(
    command: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert ended.value.code == 2
    assert named in said, said
    assert not list(tmp_path.iterdir()), "no directory called s3: is made"
