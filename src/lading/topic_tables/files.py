"""Parquet files of tables: rendered when one is first asked for, then kept on disk as long as there is room."""

from __future__ import annotations

import io
import json
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..runtime.private_files import make_private_directory, open_private
from .file_facts import FactCollector, FileFacts, find_splits
from .table_schema import TableSchema

LOG: Final = logging.getLogger("lading.topic_tables")
T = TypeVar("T")
GROUP_ROWS: Final = 1 << 17
COMPRESSION: Final = "zstd"
GROUP_BYTES: Final = 64 << 20
"""A row group ends at the row that reaches this size: it is in memory until it is written."""
FUTURES_MAX: Final = 10_000
"""Files whose facts are in memory; those of others are read from disk again."""
MEMORY_BYTES: Final = 256 << 20
"""Files of a full disk that are kept in memory; beyond this the oldest one is made again when it is read."""
KEPT_S: Final = 3_600
"""Files stay at least this long after they were last used: engines read a snapshot for as long as they please."""
CACHE_BYTES: Final = 8 << 30
"""Files beyond this are deleted, those unused for longest first."""
SWEEP_S: Final = 60


class RenderedFile:
    """A file that is there: on disk, or in memory if the disk is full."""

    def __init__(self, facts: FileFacts, path: Path | None, body: bytes = b"") -> None:
        self.facts = facts
        self._path = path
        self._body = body

    def open(self) -> BinaryIO:
        """Return its bytes as a stream, which a deletion does not end. Raises OSError if it was deleted before."""
        return io.BytesIO(self._body) if self._path is None else self._path.open("rb")

    def read(self, first: int, end: int) -> bytes:
        """Return the bytes [first, end). Raises OSError if it was deleted meanwhile."""
        with self.open() as file:
            file.seek(first)
            return file.read(end - first)

    def touch(self) -> bool:
        """Note that the file is in use; return whether it is still there."""
        if self._path is None:
            return True
        try:
            os.utime(self._path)
        except FileNotFoundError:
            return False
        return True


class FileCache:
    """Rendered files below a directory. One that is asked for by several at once is rendered once."""

    def __init__(
        self,
        directory: Path,
        workers: int,
        cache_bytes: int = CACHE_BYTES,
        on_deleted: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_deleted`` is called after files were deleted: made again, they may lack rows that retention deleted."""
        self._directory = directory
        self._on_deleted = on_deleted
        self._cache_bytes = cache_bytes
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="lading-render")
        self._short_pool = ThreadPoolExecutor(workers, thread_name_prefix="lading-render-short")
        self._files: OrderedDict[str, Future[RenderedFile]] = OrderedDict()
        self._in_memory: OrderedDict[str, int] = OrderedDict()
        """Sizes of the files that a full disk left in memory, oldest first."""
        self._lock = threading.Lock()
        self._swept = time.monotonic()

    def get(self, key: str, render: Callable[[Any], FileFacts], is_short: bool = False) -> Future[RenderedFile]:
        """Return the file ``key`` as soon as it is there; ``render`` writes it into a binary stream.

        Short ones do not wait for the others.
        """
        with self._lock:
            future = self._files.get(key)
            if future is not None and self._is_there(future):
                self._files.move_to_end(key)
                return future
            pool = self._short_pool if is_short else self._pool
            future = self._files[key] = pool.submit(self._load_or_render, key, render)
            self._files.move_to_end(key)
            while len(self._files) > FUTURES_MAX and next(iter(self._files.values())).done():
                self._files.popitem(last=False)
        self._sweep_if_due()
        return future

    def has(self, key: str) -> bool:
        """Return whether a file is on disk, or in memory."""
        with self._lock:
            if key in self._files:
                return True
        return (self._directory / key).exists()

    @staticmethod
    def _is_there(future: Future[RenderedFile]) -> bool:
        if not future.done():
            return True
        return future.exception() is None and future.result().touch()

    def _load_or_render(self, key: str, render: Callable[[Any], FileFacts]) -> RenderedFile:
        path = self._directory / key
        facts_path = path.with_suffix(".json")
        try:
            facts = FileFacts.parse(json.loads(facts_path.read_bytes()))
            if path.stat().st_size == facts.size_bytes:
                os.utime(path)
                return RenderedFile(facts, path)
        except (OSError, ValueError, TypeError):
            # not there yet, or cut short by a power cut: the same bytes are made again
            pass
        try:
            make_private_directory(path.parent)
            fresh = path.with_suffix(f".{threading.get_ident()}.new")
            try:
                with open(fresh, "wb", opener=open_private) as file:
                    facts = render(file)
                    facts.size_bytes = file.tell()
                with open(facts_path, "w", encoding="utf-8", opener=open_private) as document:
                    json.dump(facts.to_document(), document)
                fresh.replace(path)
            finally:
                fresh.unlink(missing_ok=True)
            return RenderedFile(facts, path)
        except OSError as error:
            LOG.warning("%s: %s; the file is kept in memory, make room", path, error.strerror)
            stream = io.BytesIO()
            facts = render(stream)
            facts.size_bytes = stream.tell()
            with self._lock:
                self._in_memory[key] = facts.size_bytes
                while sum(self._in_memory.values()) > MEMORY_BYTES and len(self._in_memory) > 1:
                    self._files.pop(self._in_memory.popitem(last=False)[0], None)
            return RenderedFile(facts, None, stream.getvalue())

    def _sweep_if_due(self) -> None:
        now = time.monotonic()
        with self._lock:
            if now - self._swept < SWEEP_S:
                return
            self._swept = now
        self._pool.submit(self.sweep, time.time())

    def sweep(self, now_s: float) -> None:
        """Delete the files unused for longest until the rest fits, but none used within the last hour."""
        held = []
        for path in self._directory.rglob("*.parquet"):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            held.append((status.st_mtime, status.st_size, path))
        for path in self._directory.rglob("*.new"):
            # a process that was killed left it
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < now_s - KEPT_S:
                    path.unlink()
        total = before = sum(size for _, size, _ in held)
        for used, size, path in sorted(held):
            if total <= self._cache_bytes or used > now_s - KEPT_S:
                break
            path.unlink(missing_ok=True)
            path.with_suffix(".json").unlink(missing_ok=True)
            total -= size
        with self._lock:
            gone = [key for key, future in self._files.items() if future.done() and not self._is_there(future)]
            for key in gone:
                del self._files[key]
        if total != before:
            self._on_deleted()

    def close(self) -> None:
        """End the threads."""
        for pool in (self._pool, self._short_pool):
            pool.shutdown(wait=False, cancel_futures=True)


def call_after(futures: Sequence[Future[Any]], call: Callable[[], T], pool: Executor) -> Future[T]:
    """Return the result of a call that a thread of ``pool`` makes after all ``futures`` ended; no thread waits."""
    result: Future[T] = Future()
    lock = threading.Lock()
    left = len(futures) + 1

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)

    def count(future: object) -> None:
        nonlocal left
        with lock:
            left -= 1
            is_last = not left
        if is_last:
            try:
                pool.submit(run)
            except RuntimeError as error:
                # the process ends
                result.set_exception(error)

    for future in futures:
        future.add_done_callback(count)
    count(None)
    return result


def write_parquet(schema: TableSchema, batches: Iterable[pa.RecordBatch], stream: Any) -> FileFacts:
    """Write rows as a Parquet file and return its facts. The same rows give the same bytes in any batches."""
    collector = FactCollector(schema)
    arrow = schema.arrow
    with pq.ParquetWriter(stream, arrow, compression=COMPRESSION, write_page_index=True, store_schema=False) as writer:
        waiting: list[pa.RecordBatch] = []
        rows = size_bytes = 0
        for batch in batches:
            collector.add(batch)
            ends = np.cumsum(_measure_rows(batch))
            begun = 0
            while begun < batch.num_rows:
                measured = int(ends[begun - 1]) if begun else 0
                reached = int(np.searchsorted(ends, measured + GROUP_BYTES - size_bytes)) + 1
                stop = min(batch.num_rows, reached, begun + GROUP_ROWS - rows)
                waiting.append(batch.slice(begun, stop - begun))
                rows, size_bytes, begun = rows + stop - begun, size_bytes + int(ends[stop - 1]) - measured, stop
                if rows == GROUP_ROWS or size_bytes >= GROUP_BYTES:
                    writer.write_table(pa.Table.from_batches(waiting, arrow).combine_chunks(), GROUP_ROWS)
                    waiting, rows, size_bytes = [], 0, 0
        if rows:
            writer.write_table(pa.Table.from_batches(waiting, arrow).combine_chunks(), GROUP_ROWS)
    facts = collector.finish()
    facts.splits = find_splits(writer.writer.metadata) if facts.rows else []
    return facts


def _measure_rows(batch: pa.RecordBatch) -> Any:
    """Return the bytes of texts, of binary values and of header values of each row."""
    sizes = np.zeros(batch.num_rows, np.int64)
    held: Any
    for held in batch.columns:
        if pa.types.is_binary(held.type) or pa.types.is_string(held.type):
            sizes += _measure_values(held)
        elif pa.types.is_list(held.type) and pa.types.is_struct(held.type.value_type):
            ends = np.append(0, np.cumsum(_measure_values(held.values.field("value"))))
            sizes += np.diff(ends[np.asarray(held.offsets)])
    return sizes


def _measure_values(column: Any) -> Any:
    return np.asarray(pc.fill_null(pc.binary_length(column), 0), np.int64)
