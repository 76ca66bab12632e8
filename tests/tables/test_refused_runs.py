"""A run that is refused before its first batch leaves its target as it was: another topic and form may have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyiceberg.catalog
import pytest
from pyiceberg.catalog import Catalog

from lading import Producer, testing
from lading.broker.core.access.rights import Right
from lading.model.errors import FilterError, LocalError, RemoteError
from lading.tables.commit.state import PipelineStateDirectory
from lading.tables.engine import TableRun, begin
from lading.tables.formats.registry import open_table
from lading.tables.ingest import IngestSettings, ingest
from lading.tables.storage.object_path import ObjectPath
from lading.tables.withdrawal import RunWithdrawal, remove_made_directories
from tests.endpoints.identity import PASSWORDS, broker_with_users, rule
from tests.endpoints.test_http_users import client as http_client

from .direct import DirectExecutor
from .logged_forms import COLUMNS, FORMS, NUMBERS, run, send
from .object_forms import FORMS as FORMS_IN_BUCKETS

forms = pytest.mark.parametrize("form", ["parquet", *(form.name for form in FORMS)])


@pytest.fixture
def topic() -> str:
    return f"refused{next(NUMBERS)}"


def tree(home: Path) -> list[str]:
    """All that there is below a directory."""
    return sorted(str(path.relative_to(home)) for path in home.rglob("*"))


def open_catalog() -> Catalog:
    """The catalog as another tool opens it."""
    return pyiceberg.catalog.load_catalog("prod")


@pytest.fixture
def catalog(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> str:
    """A catalog of the user, by name, which another tool has put a table into."""
    home = tmp_path_factory.mktemp("catalog")
    settings = {"prod": {"type": "sql", "uri": f"sqlite:///{home}/catalog.db"}}
    load = pyiceberg.catalog.load_catalog
    monkeypatch.setattr(
        "pyiceberg.catalog.load_catalog", lambda name, **more: load(name, **settings.get(name, {}), **more)
    )
    held = open_catalog()
    held.create_namespace("lake")
    held.create_table("lake.theirs", pa.schema([("a", pa.int64())]), location=f"file://{home}/theirs")
    return "prod"


def refuse(
    kind: type[Exception], sentence: str, broker: testing.BrokerProcess, topic: str, target: str, **options: Any
) -> None:
    with pytest.raises(kind, match=sentence):
        ingest(DirectExecutor(), broker.url, topic, target, IngestSettings(**{"columns": COLUMNS, **options}))


@forms
@pytest.mark.parametrize("has_directory", [False, True], ids=["new", "empty"])
def test_a_refused_ingest_leaves_nothing_and_fences_nobody(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, form: str, has_directory: bool
) -> None:
    send(broker, topic, range(5))
    send(broker, f"{topic}-other", range(7))
    table = tmp_path / "lake" / "table"
    if has_directory:
        table.mkdir(parents=True)
    before = tree(tmp_path)
    target = f"{form}:{table}"
    refuse(FilterError, "unknown header 'nosuch'", broker, topic, target, where="nosuch = 'x'")
    assert tree(tmp_path) == before
    refuse(FilterError, "unknown header", broker, topic, target, where="nosuch = 1", state_dir=tmp_path / "a" / "state")
    assert tree(tmp_path) == before
    refuse(LocalError, f"topic '{topic}-none' does not exist", broker, f"{topic}-none", target)
    (tmp_path / "file").write_text("x")
    refuse(LocalError, "cannot be written to", broker, topic, f"{form}:{tmp_path}/file/table")
    refuse(LocalError, "state directory .* cannot be", broker, topic, target, state_dir=tmp_path / "file" / "state")
    (tmp_path / "file").unlink()
    assert tree(tmp_path) == before
    # a topic that has nothing to do with it, in another form
    assert run("parquet" if form == "delta" else "delta", broker, f"{topic}-other", table).rows == 7


@pytest.mark.parametrize("form", FORMS_IN_BUCKETS)
def test_a_refused_ingest_leaves_a_bucket_as_it_was(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, bucket: str, form: str
) -> None:
    send(broker, topic, range(5))
    lead, state = FORMS_IN_BUCKETS[form][0], tmp_path / "state"
    for place in (f"{bucket}/table", f"{bucket}/other"):
        refuse(FilterError, "nosuch", broker, topic, f"{lead}{place}", where="nosuch = 'x'", state_dir=state)
        assert not list(ObjectPath.parse(place).walk()) and not state.exists()
    made = TableRun(
        "r", PipelineStateDirectory.open(state, topic), [],
        {ObjectPath.parse(f"{bucket}/{name}"): pa.schema([pa.field("offset", pa.int64())]) for name in "ab"}, "resume",
        forms={ObjectPath.parse(f"{bucket}/{name}"): lead.removesuffix(":") for name in "ab"},
    )  # fmt: skip
    with pytest.raises(LocalError, match="of another kind"), made.state.running(), RunWithdrawal(made) as withdrawal:
        withdrawal.claim_tables()
        begin(made, resume=False)
        assert [*ObjectPath.parse(f"{bucket}/a").walk()]
        raise LocalError("of another kind")
    assert not [*ObjectPath.parse(f"{bucket}/a").walk(), *ObjectPath.parse(f"{bucket}/b").walk()]


def test_a_catalog_that_is_not_set_up_leaves_nothing(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, catalog: str
) -> None:
    send(broker, topic, range(5))
    table = tmp_path / "table"
    refuse(LocalError, "catalog 'typo' is not set up", broker, topic, f"iceberg:typo:{table}")
    assert tree(tmp_path) == []
    # known to the catalog under another place: found out when everything else is there
    refuse(LocalError, "has lake.theirs already, at", broker, topic, f"iceberg:{catalog}/lake.theirs:{table}")
    assert tree(tmp_path) == []
    assert open_catalog().table_exists("lake.theirs")
    assert run("iceberg", broker, topic, table, catalog=f"{catalog}/lake.flights:").rows == 5


def of_pipeline(state: PipelineStateDirectory, home: Path, catalog: str) -> TableRun:
    """A pipeline with a table of each form, and one that the catalog refuses."""
    fields: list[pa.Field[Any]] = [pa.field("offset", pa.int64()), pa.field("carrier", pa.string())]
    schema = pa.schema(fields)
    tables: dict[Any, str] = {
        home / "parquet": "parquet",
        home / "delta": "delta",
        home / "own": "iceberg",
        home / "named": f"iceberg:{catalog}/lake.flights",
        home / "refused": f"iceberg:{catalog}/lake.theirs",
    }
    return TableRun("pipeline 'p'", state, [], dict.fromkeys(tables, schema), "resume", forms=tables)


def start(run: TableRun, leave_out: str = "") -> None:
    for table in [table for table in run.schemas if leave_out and str(table).endswith(leave_out)]:
        del run.schemas[table]
    places = [run.state.directory, *run.schemas]
    with remove_made_directories(*places), run.state.running(), RunWithdrawal(run) as withdrawal:
        withdrawal.claim_tables()
        begin(run, resume=False)
        run.state.note_begin({"t": {}})
        withdrawal.keep()


def test_tables_that_were_made_before_the_one_that_is_refused_are_taken_back(tmp_path: Path, catalog: str) -> None:
    def new_state() -> PipelineStateDirectory:
        return PipelineStateDirectory.open(tmp_path / "state", "p", "pipeline")

    with pytest.raises(LocalError, match=r"has lake\.theirs already"):
        start(of_pipeline(new_state(), tmp_path, catalog))
    # the state's was there before the run
    assert tree(tmp_path) == ["state"]
    assert open_catalog().list_tables("lake") == [("lake", "theirs")]
    state = new_state()
    start(of_pipeline(state, tmp_path, catalog), leave_out="refused")
    assert (tmp_path / "delta" / "_delta_log").exists() and open_catalog().table_exists("lake.flights")
    # what is the pipeline's by now stays when a table that is added is refused
    begun = tree(tmp_path)
    with pytest.raises(LocalError, match=r"has lake\.theirs already"):
        start(of_pipeline(state, tmp_path, catalog))
    assert tree(tmp_path) == begun
    assert new_state().pipeline == state.pipeline


@forms
def test_a_table_with_rows_is_never_taken_back(
    broker: testing.BrokerProcess, topic: str, tmp_path: Path, form: str
) -> None:
    send(broker, topic, range(5))
    table = tmp_path / "table"
    run(form, broker, topic, table)
    before = tree(tmp_path)
    name = PipelineStateDirectory.open(table, topic).pipeline
    assert not open_table(table).withdraw(name)
    refuse(FilterError, "unknown header 'nosuch'", broker, topic, f"{form}:{table}", where="nosuch = 'x'")
    assert tree(tmp_path) == before
    assert run(form, broker, topic, table).rows == 0
    # Delta and Iceberg: rows that are deleted are a history that somebody may go back to
    for file in table.rglob("*.parquet"):
        file.unlink()
    assert open_table(table).withdraw(name) == (form == "parquet")


def test_a_run_that_meets_one_that_is_refused_is_told(tmp_path: Path) -> None:
    """It has read whose state it is, and waits for the lock."""
    state = PipelineStateDirectory.open(tmp_path / "state", "t")
    other = PipelineStateDirectory.open(tmp_path / "state", "t")
    state.withdraw()
    for make_anew in (False, True):
        if make_anew:
            PipelineStateDirectory.open(tmp_path / "state", "t")
        with pytest.raises(LocalError, match=r"was deleted meanwhile, .* was refused; run this again"), other.running():
            pass


def test_a_topic_that_may_be_seen_and_not_read(tmp_path: Path) -> None:
    """Found out by the first fetch, in a task."""
    with broker_with_users(tmp_path / "data", [rule("ann", Right.DESCRIBE, "t")]) as (broker, _):
        root = http_client(broker, basic="root")
        assert root.post("/topics/default/t", json={}).status_code == 201
        url = f"kafka://{broker.endpoints['kafka']}"
        login = {"username": "ann", "password": PASSWORDS["ann"], "sasl_mechanism": "PLAIN"}
        with Producer(url, username="root", password=PASSWORDS["root"]) as producer:
            for row in range(5):
                producer.send("t", b"{}", headers={"carrier": "UA", "delay": row})
        table = tmp_path / "lake" / "table"
        # another start is that of the first run forever
        for starting, is_kept in (("earliest", False), ('{"0": 2}', True)):
            given: dict[str, Any] = {"columns": COLUMNS, "transport": login, "starting": starting}
            with pytest.raises(
                RemoteError,
                match=r"TOPIC_AUTHORIZATION_FAILED \(29\); this login lacks a right to the topic: grant",
            ):
                ingest(DirectExecutor(), url, "t", f"delta:{table}", IngestSettings(**given))
            assert table.parent.exists() == is_kept
