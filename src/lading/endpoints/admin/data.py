"""Admin: messages of one partition, as raw chunks, as filtered batches, and appended as native blocks."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from ...broker.core.access.rights import Right
from ...broker.core.chunks import read_chunks
from ...broker.core.offsets_for_times import offset_at
from ...broker.core.query import Query, Selected, select_in_turns
from ...broker.core.query import parse_query as parse_filter
from ...broker.core.read import read
from ...broker.schemas.stored_schemas import choose_form
from ...dialects.native import messages as native
from ...model.limits import REQUEST_BYTES_MAX
from ...runtime.turns import Turns, finish
from ..base.append_wait import wait_acknowledged
from ..base.fair_runner import call_once
from ..base.loaded_read import read_when_loaded
from ..base.services import Services, now_us
from ..http_shared.documents import BatchesQuery, ChunksQuery, TimeQuery, json_response, parse_query
from ..http_shared.http import InPieces, read_body
from ..http_shared.http_guard import client_of, principal_of, resource_in_path
from ..http_shared.partitions import partition_of
from ..http_shared.routing import HttpRoute, Parameters

if TYPE_CHECKING:
    from ...broker.core.topology import Partition

R = TypeVar("R")

NAME: Final = "admin"

CHUNKS_TYPE: Final = "application/octet-stream"
BATCHES_TYPE: Final = "application/vnd.apache.arrow.stream"
INLINE_BYTES_MAX: Final = 100 << 10
"""Bodies above this are checked in a worker."""
FILTERED_MESSAGES_MAX: Final = 1 << 20
"""How many messages are checked for one filtered response, however few match."""

_PARTITION: Final = "/topics/{stream}/{topic}/{partition}"


class AdminData:
    """Handlers of the messages of a partition."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._broker = services.broker
        self._settings = services.settings.endpoints.admin
        self._messages_in = services.metrics.messages_in.values
        self._messages_out = services.metrics.messages_out.values
        self._hidden = services.metrics.hidden_out.values
        self._received_bytes = services.metrics.received_bytes.values

    def routes(self) -> list[HttpRoute]:
        """Return the table for the router."""
        return [
            HttpRoute("GET", f"{_PARTITION}/chunks", "chunks.get", self._read_chunks, right=Right.READ),
            HttpRoute("POST", f"{_PARTITION}/chunks", "chunks.append", self._append, right=Right.WRITE),
            HttpRoute("GET", f"{_PARTITION}/batches", "batches.get", self._read_batches, right=Right.READ),
            HttpRoute("GET", f"{_PARTITION}/offset", "offset.at", self._find_offset, right=Right.READ),
        ]

    async def _read_chunks(self, request: Request, path: Parameters) -> Response:
        query = parse_query(ChunksQuery, request.query_params)
        partition = partition_of(self._broker, path)
        if query.wait_ms and query.offset >= partition.log.last_stable_offset:
            await self._wait_for_messages(partition, min(query.wait_ms, self._settings.wait_ms_max))
            # meanwhile rights may have been revoked, and the partition deleted or replaced
            self._broker.access.require(principal_of(request), Right.READ, resource_in_path(request, path))
            partition = partition_of(self._broker, path)
        chunks = await read_when_loaded(
            lambda: read_chunks(
                partition,
                query.offset,
                max_bytes=min(query.max_bytes, self._settings.answer_bytes_max),
                counters=self._broker.counters,
            )
        )
        self._messages_out[(NAME,)] += chunks.count
        headers = _describe_place(partition) | {
            "lading-base-offset": str(chunks.base_offset),
            "lading-end-offset": str(chunks.end_offset),
            "lading-hidden": json.dumps([list(one) for one in chunks.hidden]),
            "lading-aborted": json.dumps([list(one) for one in chunks.aborted]),
        }
        return InPieces(chunks.data, headers=headers, media_type=CHUNKS_TYPE)

    async def _wait_for_messages(self, partition: Partition, wait_ms: int) -> None:
        """Wait until more messages are readable, the time is over, or the broker stops."""
        more = asyncio.Event()
        cancel = partition.add_visible_callback(more.set)
        forget = self._services.add_stop_callback(more.set)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await more.wait()
        except TimeoutError:
            pass
        finally:
            cancel()
            forget()

    async def _append(self, request: Request, path: Parameters) -> Response:
        body = await read_body(request, REQUEST_BYTES_MAX, self._services.receive)
        self._received_bytes[(NAME,)] += len(body)
        checked = await self._services.run_in_worker(len(body), INLINE_BYTES_MAX, native.check, body)
        append = self._broker.native_appender.append(
            partition_of(self._broker, path), memoryview(body), checked=checked, now_us=now_us()
        )
        await wait_acknowledged(append)
        if not append.duplicate:
            self._messages_in[(NAME,)] += append.count
        return json_response({"base_offset": append.base_offset, "count": append.count, "duplicate": append.duplicate})

    async def _read_batches(self, request: Request, path: Parameters) -> Response:
        wanted = parse_query(BatchesQuery, request.query_params)
        form = choose_form(self._broker.schemas, partition_of(self._broker, path).topic)
        parse = partial(parse_filter, wanted.where, wanted.columns, wanted.states, wanted.headers_only, form)
        query = parse() if wanted.where is None else await self._filter(request, call_once(parse))
        partition = partition_of(self._broker, path)
        messages_max = FILTERED_MESSAGES_MAX if wanted.max_rows is None or query.filter else wanted.max_rows
        reading = await read_when_loaded(
            lambda: read(
                partition,
                wanted.offset,
                reader=query.reader,
                max_messages=messages_max,
                max_bytes=self._settings.answer_bytes_max,
                counters=self._broker.counters,
            )
        )
        headers = _describe_place(partition) | {"lading-damaged": json.dumps([list(one) for one in reading.damaged])}

        def work() -> Turns[tuple[Selected, pa.Buffer]]:
            selected = yield from select_in_turns(reading, query, partition, end=wanted.end, max_rows=wanted.max_rows)
            return selected, _write_stream(query, selected)

        if query.filter is None:
            selected, stream = await self._services.run_in_worker(1, 0, finish, work())
        else:
            selected, stream = await self._filter(request, work())
        self._messages_out[(NAME,)] += sum(batch.num_rows for batch in selected.batches)
        headers["lading-end-offset"] = str(selected.end_offset)
        return Response(memoryview(stream), headers=headers, media_type=BATCHES_TYPE)

    async def _filter(self, request: Request, work: Turns[R]) -> R:
        """Compile or evaluate a filter: it may take long, so that it is not done in the event loop or a worker."""
        return await self._services.filters.run(client_of(request), work)

    async def _find_offset(self, request: Request, path: Parameters) -> Response:
        query = parse_query(TimeQuery, request.query_params)
        partition = partition_of(self._broker, path)
        offset = await read_when_loaded(lambda: offset_at(partition, query.timestamp_us))
        return json_response({"offset": offset})


def _describe_place(partition: Partition) -> dict[str, str]:
    """Return the facts by which a reader distinguishes a loss from the end."""
    log = partition.log
    return {
        "lading-topic-id": partition.topic.uuid.hex(),
        "lading-epoch": str(log.epoch),
        "lading-epochs": json.dumps([[epoch, first] for epoch, first in log.epochs]),
        "lading-first-offset": str(log.first_offset),
        "lading-synced-end": str(log.high_watermark),
        "lading-stable-end": str(log.last_stable_offset),
    }


def _write_stream(query: Query, selected: Selected) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, query.schema) as writer:
        for batch in selected.batches:
            writer.write_batch(batch)
    return sink.getvalue()
