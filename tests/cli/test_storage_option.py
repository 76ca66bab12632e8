"""``lading ingest`` and ``lading sql`` with a store that the command line or a profile names, by references."""

from __future__ import annotations

from pathlib import Path

import pytest

from lading import Producer, testing
from lading.cli import profiles
from tests.tables.object_server import KEY, REGION, SECRET, ObjectServer

from .conftest import Run, documents

OTHERS = {
    "AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "else", "AWS_REGION": "mars-1",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
}  # fmt: skip
"""What the environment says of another store."""
ROWS = 20


@pytest.fixture(scope="module")
def filled(broker: testing.BrokerProcess) -> None:
    with Producer(broker.url) as producer:
        for number in range(ROWS):
            producer.send("flights", b"%d" % number, headers=[("carrier", "UA" if number % 4 else "AA")])


@pytest.fixture
def written(object_server: ObjectServer, tmp_path: Path) -> dict[str, str]:
    """How the store is reached, as ``[storage]`` says it; files relative to where a command is called."""
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    return {
        "endpoint": object_server.url, "region": REGION, "access_key_id_env": "LAKE_KEY",
        "secret_access_key_file": "secret",
    }  # fmt: skip


def copy_and_count(lading: Run, bucket: str, words: list[str], lead: list[str], form: str) -> None:
    """Ingest the topic twice, then ask for its rows."""
    table = f"{form}{bucket}/flights"
    environment = {**OTHERS, "LAKE_KEY": KEY}
    state = ["--state", "state", "--local", "--columns", "offset, carrier string, payload"]
    for rows in (ROWS, 0):
        done = lading(*lead, "ingest", "flights", table, *state, *words, "--output", "json", **environment)
        assert documents(done)[-1]["rows"] == rows and SECRET not in done.stdout + done.stderr
    query = ["sql", "select carrier, count(*) as n from lake group by 1 order by 1", "--table", f"lake={table}"]
    assert documents(lading(*lead, *query, *words, "--output", "json", **environment)) == [
        {"carrier": "AA", "n": 5}, {"carrier": "UA", "n": 15},
    ]  # fmt: skip
    assert not [
        path for path in Path.cwd().rglob("state/**/*") if path.is_file() and SECRET in path.read_text("latin1")
    ]


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("form", ["", "delta:"])
@pytest.mark.turns(2)
def test_the_command_line_names_a_store(
    lading: Run, object_server: ObjectServer, written: dict[str, str], form: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Before, only the environment could say it, which belongs to another store here."""
    monkeypatch.chdir(tmp_path)
    words = [word for name, value in written.items() for word in ("--storage", f"{name}={value}")]
    bucket = object_server.create_bucket(f"cli{len(form)}")
    copy_and_count(lading, bucket, words, [], form)


@pytest.mark.turns(2, part=0)
@pytest.mark.usefixtures("filled")
def test_a_profile_names_a_store(
    process: Run, broker: testing.BrokerProcess, object_server: ObjectServer, written: dict[str, str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Its files are beside the file of profiles, wherever a command is called."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    file = profiles.profiles_file()
    file.parent.mkdir(parents=True)
    (tmp_path / "secret").rename(file.parent / "secret")
    section = "".join(f'{name} = "{value}"\n' for name, value in written.items())
    file.write_text(f'[lake]\nserver = "{broker.url}"\n[lake.storage]\n{section}')
    copy_and_count(process, object_server.create_bucket("cli-profile"), [], ["--profile", "lake"], "")


REFUSED = {
    "a credential": (["secret_access_key=hush"], "seen by everybody on this machine; name a variable or a file"),
    "no value": (["region"], "--storage 'region': write NAME=VALUE, e.g. region=eu-west-1"),
    "a misspelt name": (["regoin=x"], "--storage: unknown option 'regoin'; did you mean region?"),
    "half of a pair": (["access_key_id_env=A"], "--storage has access_key_id_env without its secret_access_key; add"),
    "a variable that is not set": (
        ["access_key_id_env=NOBODY17", "secret_access_key_env=NOBODY18"],
        "--storage.access_key_id_env: the variable 'NOBODY17' is not set in the environment; set it. That was process",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("command", ["ingest", "sql"])
def test_refused_options(lading: Run, what: str, command: str) -> None:
    given, sentence = REFUSED[what]
    words = [word for text in given for word in ("--storage", text)]
    table = "s3://lake/flights"
    rest = ["flights", table, "--state", "state", "--local"] if command == "ingest" else ["select 1 from t"]
    more = ["--table", f"t={table}"] if command == "sql" else []
    said = lading(command, *rest, *more, *words, code=2).stderr
    assert sentence in said and "hush" not in said


@pytest.mark.turns(2, part=1)
def test_a_profile_in_clear_text_is_refused(process: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = profiles.profiles_file()
    file.parent.mkdir(parents=True)
    for section, sentence in {
        '[lake.storage]\naccount_key = "hush"\n': "[storage].account_key is in the file in clear text",
        '[lake]\nstorage = "s3"\n': "storage is a section with texts",
    }.items():
        file.write_text(section)
        said = process("--profile", "lake", "sql", "select 1", code=2).stderr
        assert sentence in said.replace("\n", " ") and "hush" not in said
