"""A range replaced in tables on an S3 server whose requests fail, next to runs of the pipeline."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from lading import testing
from lading.model.errors import LadingError
from lading.pipeline.replace import replace_range
from lading.pipeline.settings import PipelineSettings
from lading.tables.formats import delta
from lading.tables.storage import object_path
from lading.transports.lading.transport import LadingTransport
from tests.tables.direct import DirectExecutor
from tests.tables.object_faults import FAULTS, run_faulty_store
from tests.tables.object_forms import FORMS, point_to
from tests.tables.object_server import ObjectServer
from tests.tables.test_object_faults import OPTIONS, RETRIES

from .direct import Driver
from .flights import QUARANTINE, TOML, fate, fill
from .test_objects import read_all, to_bucket

PARTITIONS, FIRST, STEP = 2, 120, 4
"""Messages of each partition that the tables have before the first point, and those that each point adds."""
POINTS, SAMPLE, POINTS_PER_PIPELINE = 48, 2, 12
"""Points of each form, in full and on an ordinary day; a log that has grown takes longer to read."""


@pytest.mark.turns(3)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("form", FORMS)
def test_a_replacement_whose_requests_fail(
    served: testing.BrokerProcess, object_server: ObjectServer, form: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, full: bool,
) -> None:  # fmt: skip
    """At each point a request of a replacement or of the run after it fails; then both are repeated."""
    monkeypatch.setattr(object_path, "RETRIES", RETRIES)
    monkeypatch.setattr(delta, "storage_options", lambda root: OPTIONS)
    chosen, points, counted, failed = random.Random(f"29 {form}"), POINTS if full else SAMPLE, 0, 0
    with run_faulty_store(object_server.url) as store:
        point_to(object_server, tmp_path, monkeypatch, store.url)
        while counted < points:
            name = f"replaced-{form}-{counted}"
            bucket, base = object_server.create_bucket(name), tmp_path / name
            base.mkdir()
            transport = LadingTransport(served.url)
            fill(transport, name, PARTITIONS, FIRST + STEP * POINTS_PER_PIPELINE * 2)
            transport.close()
            file, until, end = base / "flights.toml", min(counted + POINTS_PER_PIPELINE, points), FIRST

            def write(end: int, file: Path = file, name: str = name, bucket: str = bucket) -> None:
                text = TOML.format(source=served.url, topic=name, server=served.url, max_rows=80)
                text += QUARANTINE.format(topic=f"{name}-copies")
                file.write_text(to_bucket(text, form, bucket).replace("[headers]", f"ending = {end}\n\n[headers]"))

            def replace(file: Path = file) -> None:
                replace_range(PipelineSettings.load(file), DirectExecutor(), "20", "100")

            write(end)
            Driver(file).run()
            store.arm(1 << 30, "cut")
            replace()
            requests = store.requests
            while counted < until:
                end += STEP
                write(end)
                store.arm(chosen.randrange(requests), FAULTS[counted % len(FAULTS)])
                try:
                    replace()
                    Driver(file).run()
                except LadingError:
                    failed += 1
                counted += store.heal()
                requests = max(10, min(requests, store.requests))
                Driver(file).run()
                expected = {(part, row): [fate(row)] for part in range(PARTITIONS) for row in range(end)}
                assert read_all(form, bucket) == expected
            replace()
            assert read_all(form, bucket) == expected
    print(f"replace of {form} on S3: {counted} points, {failed} ended by them; lost 0, doubled 0")
