"""Ray Data reads a topic, a task for each partition, with projection and filters pushed down.

Ray is no requirement of the tests: ``pip install -c constraints.txt '.[ray]'`` in the clone, or skipped.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

import lading
from lading import Admin, Producer, i16, testing
from lading.client import bulk
from lading.integrations.ray import to_dataset

ray: Any = pytest.importorskip("ray")
pytest.importorskip("ray.data")
START_S = 400


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ray on this machine, with one worker."""
    before = dict(os.environ)
    # its workers are the last to run on a busy machine
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
    # sockets of Ray lie below, whose paths have 107 characters at most
    directory = f"/tmp/{tmp_path_factory.mktemp('ray').parent.name}-ray"
    ray.init(num_cpus=1, include_dashboard=False, object_store_memory=1 << 30, _temp_dir=directory)
    yield
    ray.shutdown()
    # Ray leaves variables of its own
    os.environ.clear()
    os.environ.update(before)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.timeout(START_S)
def test_ray_reads_what_a_program_needs(cluster: None) -> None:
    from ray.data.expressions import col

    with testing.broker() as broker:
        with Admin(broker.url) as admin:
            admin.create_topic("ray_scans", partitions=3)
        with Producer(broker.url) as producer:
            for number in range(90):
                headers = [("carrier", ("UA", "AA")[number % 2]), ("delay", i16(number))]
                producer.send("ray_scans", b"x", headers=headers, partition=number % 3)
        flights = lading.scan(broker.url, "ray_scans", "partition, offset, timestamp, carrier string, delay int")
        rows = to_dataset(flights)
        assert rows.count() == 90
        assert rows.schema().names == flights.schema.names
        late = rows.filter(expr=(col("delay") > 60) & col("carrier").is_in(["UA"])).select_columns(["delay"])
        assert sorted(row["delay"] for row in late.take_all()) == list(range(62, 90, 2))
        # a function of Python is no condition that a source could take
        even = rows.filter(lambda row: row["delay"] % 4 == 0).select_columns(["offset", "delay"])
        assert sorted(row["delay"] for row in even.take_all()) == list(range(0, 90, 4))
        assert sorted(row["offset"] for row in rows.filter(expr=col("partition") == 1).take_all()) == list(range(30))
        assert len(rows.limit(4).take_all()) == 4
        # read anew by each execution
        with Producer(broker.url) as producer:
            producer.send("ray_scans", b"x", headers=[("carrier", "UA"), ("delay", i16(500))], partition=0)
        assert rows.count() == 91


def test_a_task_reads_the_columns_and_messages_of_its_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tasks that a source gives to Ray, run here: what a task reads is seen in this process alone."""
    from ray.data.expressions import col

    counted: list[tuple[int, list[str]]] = []
    read = bulk.read_selection

    def count(*arguments: Any, **options: Any) -> Iterator[Any]:
        for batch in read(*arguments, **options):
            counted.append((batch.num_rows, batch.schema.names))
            yield batch

    monkeypatch.setattr("lading.client.scan.read_selection", count)
    taken: list[Any] = []
    monkeypatch.setattr("ray.data.read_datasource", lambda source, **_: taken.append(source))
    with testing.broker() as broker:
        with Producer(broker.url) as producer:
            for number in range(90):
                producer.send("ray_tasks", b"x", headers=[("carrier", "UA"), ("delay", i16(number))])
        to_dataset(lading.scan(broker.url, "ray_tasks", "offset, timestamp, carrier string, delay int"))
        (source,) = taken
        narrow = source.apply_projection({"carrier": "carrier"}).apply_predicate(col("delay") > 60)
        counting = source.apply_projection({})
        assert sum(table.num_rows for task in counting.get_read_tasks(1) for table in task()) == 90
        assert counted[-1][1] == ["offset"]
        counted.clear()
        tables = [table for task in narrow.get_read_tasks(1) for table in task()]
        assert sum(table.num_rows for table in tables) == 29
        assert {name for table in tables for name in table.column_names} == {"carrier"}
        assert sum(rows for rows, _ in counted) == 29
        assert {name for _, names in counted for name in names} == {"carrier", "delay"}
