"""What fails after a request had to wait is told, or ends its connection: no client waits for ever."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from lading.broker.core.pending_result import PendingResult
from lading.endpoints.kafka.pending_responses import complete_with
from lading.settings.settings import EndpointSettings
from tests import forked_command
from tests.endpoints.kafka_frames import KafkaFrames, fetch

TIMEOUT_S = 30
FAULTY = """
import sys
from lading.serve import serve
from lading.endpoints.kafka.fetch_reader import FetchReader
from lading.serve.parent_pipe import end_with_parent
from lading.settings.loading import load

def keep(*_):
    raise MemoryError

end_with_parent()
FetchReader.keep = keep
serve.run(load(sets=sys.argv[1:]).settings, output="json")
"""
"""``lading serve`` that finds no memory when messages of another dialect were brought into Kafka's form."""


def test_an_answer_that_cannot_be_made_late_fails_its_request() -> None:
    """The callback raised into the event loop, and the request waited on."""

    async def run() -> None:
        def fail(value: object) -> dict[str, Any]:
            raise RuntimeError("no fields")

        answer: PendingResult[int] = PendingResult()
        fields = complete_with(answer, fail, fail)
        assert isinstance(fields, asyncio.Future)
        answer.finish(1)
        async with asyncio.timeout(10):
            with pytest.raises(RuntimeError, match="no fields"):
                await fields

    asyncio.run(run())


def test_a_fetch_that_cannot_be_answered_after_its_work_is_refused(tmp_path: Path) -> None:
    """The consumer waited for its answer for ever."""
    settings = [
        f"data={tmp_path}",
        *(f"endpoints.{name}.address=127.0.0.1:0" for name in EndpointSettings.model_fields),
    ]
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", FAULTY, *settings]
    with forked_command.ForkedCommand(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        endpoints = json.loads(process.stdout.readline())["endpoints"]
        published = httpx.post(f"http://{endpoints['nsqd_http']}/pub?topic=late", content=b"x", timeout=TIMEOUT_S)
        assert published.status_code == 200
        kafka = KafkaFrames(endpoints["kafka"])
        kafka.socket.settimeout(TIMEOUT_S)
        kafka.send(kafka.request("Fetch", 4, **fetch("late")))
        assert kafka.closed()
        process.terminate()
        said = process.communicate(timeout=TIMEOUT_S)[1].decode()
        assert "a fetch that waited failed" in said and "MemoryError" in said
