"""What a pipeline's file may say; everything else is refused in a sentence that names file, key and a better one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lading.model.errors import SettingError
from lading.pipeline.plan import Plan
from lading.pipeline.settings import PipelineSettings
from lading.pipeline.settings_problems import problems

GOOD = """
[pipeline]
trigger = "5s"

[source]
from = "./data"
topic = "flights"

[headers]
carrier = "string required"
delay = { type = "int", encoding = "auto" }

[quality]
max_failure_ratio = 0.2

[good]
to = "parquet:./tables/flights"

[[route]]
where = "delay > 60"
to = "parquet:./tables/late"
"""


def _load(tmp_path: Path, text: str) -> PipelineSettings:
    file = tmp_path / "flights.toml"
    file.write_text(text)
    return PipelineSettings.load(file)


def test_what_is_left_out_has_a_meaning(tmp_path: Path) -> None:
    settings = _load(tmp_path, GOOD)
    assert (settings.id, settings.document.pipeline.trigger) == ("flights", 5.0)
    assert settings.state_directory == settings.place(settings.document.good.to) == str(tmp_path / "tables/flights")
    assert settings.quarantine_table == str(tmp_path / "tables/flights_quarantine")
    assert settings.server(settings.document.source[0]) == "lading://127.0.0.1:7070"
    plan = Plan.of(settings)
    assert [one.name for one in plan.destinations] == ["route 1", "good"]
    assert plan.tables[0].schema.names == [
        "topic", "partition", "offset", "timestamp", "key", "carrier", "delay", "payload",
    ]  # fmt: skip
    assert [(failure.reason, failure.header) for failure in plan.failures] == [
        ("missing_header", "carrier"), ("null_header", "carrier"), ("bad_value", "carrier"), ("bad_value", "delay"),
        ("checksum_mismatch", None),
    ]  # fmt: skip


REFUSED = {
    "unknown key": ("where =", "were =", r"flights.toml: unknown key route\[1\].were; did you mean where?"),
    "unknown section": ("[quality]", "[qualty]", "unknown key qualty; did you mean quality?"),
    "misspelt key that is needed": ("from =", "form =", "unknown key source.form; did you mean from?"),
    "nothing near": ("from =", "xyz = 1\nfrom =", "unknown key source.xyz; there are from, topic"),
    "missing": ('topic = "flights"', "", "source.topic is missing; it takes the name of a topic"),
    "type word": ("string required", "strin required", "headers.carrier: unknown column type 'strin' .did you mean"),
    "word": ("string required", "string requird", "headers.carrier: .*'requird' is not a keyword .* mean required"),
    "header key": ('encoding = "auto"', 'encodin = "auto"', "headers.delay: unknown key 'encodin' .did you mean"),
    "field's name": ("carrier =", "offset =", "headers.offset: 'offset' is a field of every message"),
    "binary text": ('"string required"', '"string be"', "headers.carrier: .* reads binary numbers"),
    "range": ("= 0.2", "= 20", "quality.max_failure_ratio cannot be 20: too large; use 1 or less"),
    "time": ('"5s"', '"5 sheep"', "pipeline.trigger cannot be '5 sheep': a time is .* 30s"),
    "target": ("parquet:./tables/late", "orc:./late", r"route\[1\].to cannot be .* for example parquet:./late"),
    "plain target": ("parquet:./tables/late", "./late", "for example parquet:./late"),
    "state": ('to = "parquet:./tables/late"', 'set_state = "poison"', "did you mean 'poisoned'"),
    "no effect": ('to = "parquet:./tables/late"', "", "route 1 does nothing; give it to = "),
    "columns without table": (
        'to = "parquet:./tables/late"', 'set_state = "poisoned"\ncolumns = ["offset"]', "has columns but no table",
    ),
    "step without text": ("[good]", "[step]\nsq = 'x'\n[good]", "unknown key step.sq; did you mean sql?"),
    "empty step": ("[good]", "[[step]]\n[good]", r"step\[1\].sql is missing; it takes a query, for example sql = "),
    "states of rows": (
        '[good]\nto = "parquet:./tables/flights"\n\n[[route]]\nwhere = "delay > 60"\nto = "parquet:./tables/late"',
        '[good]\nto = "parquet:./t"\n[step]\nsql = "SELECT 1"\n[route]\nwhere = "x"\nset_state = "poisoned"',
        "route 1 sets states, but what it takes are rows that the steps made",
    ),
    "address": ("[good]", "[metrics]\naddress = 'here'\n[good]", "metrics.address cannot be 'here': an address is"),
    "no quotes": ('topic = "flights"', "topic = flights", r'invalid TOML: .*; text needs quotes: topic = "…"'),
    "no TOML": ("[source]", "[source", "invalid TOML: .*line"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refused_settings(tmp_path: Path, what: str) -> None:
    before, after, sentence = REFUSED[what]
    assert before in GOOD
    with pytest.raises(SettingError, match=sentence) as refused:
        _load(tmp_path, GOOD.replace(before, after, 1))
    assert "flights.toml" in str(refused.value)


def test_steps_have_a_plan_of_their_own(tmp_path: Path) -> None:
    text = GOOD.replace("[good]", '[step]\nsql = "SELECT carrier, delay / 60 AS hours FROM messages"\n[good]')
    text = text.replace("delay > 60", "hours > 1").replace(
        '"parquet:./tables/late"', '"parquet:./late"\ncolumns = ["hours"]'
    )
    settings = _load(tmp_path, text)
    assert list(problems(settings)) == []
    fields: list[pa.Field[Any]] = [pa.field("carrier", pa.string()), pa.field("hours", pa.float64())]
    made = pa.schema(fields)
    plan = Plan.of(settings, made)
    assert [(one.name, one.counter, one.schema.names) for one in plan.results] == [
        ("route 1", "routed", ["hours"]), ("good", "good", ["carrier", "hours"]),
    ]  # fmt: skip
    assert {path.name for path in plan.schemas} == {"late", "flights", "flights_quarantine"}
    assert plan.projection.order == ("offset", "carrier", "delay")
    assert [one.counter for one in plan.destinations] == ["passed"]


PROBLEMS = {
    "unknown header": ("delay > 60", "delai > 60", r"route\[1\].where: unknown header 'delai' .did you mean 'delay'"),
    "type clash": ("delay > 60", "delay > 'x'", r"route\[1\].where: (.|\n)*\^"),
    "columns differ": ("./tables/late", "./tables/flights\"\ncolumns = [\"offset\"]#", "with different columns"),
    "unknown column": ("[good]", "[good]\ncolumns = [\"carier\"]", "good.columns: 'carier' .*did you mean 'carrier'"),
    "object store": ("parquet:./tables/late", "parquet:hdfs://host/late", "hdfs:// is neither"),
    "file system of others": ("parquet:./tables/late", "delta:dbfs:/mnt/late", "write /dbfs/mnt/late"),
    "inside": ("./tables/late", "./tables/flights/late", "is inside that of good"),
    "quarantine": (
        "[good]", '[quarantine]\nto = "parquet:./tables/late"\n[good]', r"quarantine and route\[1\] both write",
    ),
    "sources": (
        "[source]", '[[source]]\nfrom = "./other"\ntopic = "flights"\n[[source]]',
        "two sources name the topic 'flights'",
    ),
    "own copies": ("[good]", '[quarantine]\ntopic = "default.flights"\n[good]', "would read its own copies again"),
    "case": ("[quality]", 'Delay = "int"\n[quality]', "headers.delay and headers.Delay differ only in case"),
}  # fmt: skip


@pytest.mark.parametrize("what", PROBLEMS)
def test_settings_that_do_not_fit_each_other(tmp_path: Path, what: str) -> None:
    before, after, sentence = PROBLEMS[what]
    assert before in GOOD
    settings = _load(tmp_path, GOOD.replace(before, after, 1))
    found = list(problems(settings))
    assert found and re.search(sentence, found[0]), found
    with pytest.raises(SettingError):
        Plan.of(settings)


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("delay > 60", "delai > 60").replace("[good]", '[good]\ncolumns = ["x", "offset", "offset"]')
    assert len(list(problems(_load(tmp_path, text)))) >= 3


def test_servers_are_reached_as_the_source_there_is(tmp_path: Path) -> None:
    text = GOOD.replace('"./data"', '"kafka://host:9092"').replace(
        '"flights"', '"flights"\ntransport = { username = "me" }'
    )
    settings = _load(tmp_path, text)
    assert settings.quarantine_server == "kafka://host:9092"
    assert settings.access("kafka://host:9092") == {"username": "me"}
    assert settings.access("kafka://another:9092") == {}


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"cannot read the pipeline file .*No such file"):
        PipelineSettings.load(tmp_path / "none.toml")
