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
        ("message poll flights --limit 3", "lading: option --limit does not exist; did you mean --count?"),
        ("message poll flights -c 3", "lading: option -c does not exist; did you mean --count?"),
        ("message tail flights --limit 3", "--limit does not exist; did you mean lading message poll --count?"),
        ("message send flights --count 3", "--count does not exist; did you mean lading message poll --count?"),
        ("message poll --topic flights", "TOPIC as an argument"),
        ("message tail flights --tail 3", "--offset -10"),
        ("topic list --json", "--output json"),
        ("serve --port 9092", "--set endpoints.NAME.address=HOST:PORT"),
        ("topic list --port 9092", "did you mean --from or --server?"),
        ("message poll flights --host here", "did you mean --from or --server?"),
        ("topic list -o yaml", "lading: --output: 'yaml' is not one of 'text', 'json'"),
        ("message poll flights -n abc", "'abc' is not a whole number"),
        ("message poll flights -n 0", "0 is too small; use 1 or more"),
        ("cert . --days 4000", "4000 is too large; use 3650 or less"),
        ("message poll", "Usage: lading message poll [OPTIONS] TOPIC; help: lading message poll -h"),
        ("message send", "Usage: lading message send [OPTIONS] TOPIC [PAYLOAD]; help: lading message send -h"),
        ("acl add ann reed flights", "Usage: lading acl add [OPTIONS] USER OPERATION [NAME]; help: lading acl add -h"),
        ("acl add ann reed flights", "lading: OPERATION: 'reed' is not one of all, describe, read,"),
        ("topic set flights", "Usage: lading topic set [OPTIONS] NAME KEY=VALUE...; help: lading topic set -h"),
        ("message poll", "lading: TOPIC is missing"),
        ("topic list a b", "lading: too many arguments: a b"),
        ("message poll flights -n", "lading: option -n needs a value"),
        ("serve --console=4", "lading: option --console takes no value"),
        ("topic nosuch", "lading: command 'nosuch' does not exist"),
        ("--nosuch", "lading: option --nosuch does not exist"),
        ("--server lading://127.0.0.1:1 topic list", "--server belongs after the command: lading COMMAND --server …"),
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
    printed = capsys.readouterr().err
    said = " ".join(printed.split())
    assert ended.value.code == 2
    assert named in said, said
    assert printed.startswith("lading: ") and not set("│╭╰") & set(printed), "a mistake is a sentence, not a box"
    assert not list(tmp_path.iterdir()), "no directory called s3: is made"
