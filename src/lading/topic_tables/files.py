"""Parquet files of tables: rendered when one is first asked for, then kept on disk as long as there is room."""

from __future__ import annotations

import io
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from .file_facts import FactCollector, FileFacts, find_splits
from .table_schema import TableSchema

LOG: Final = logging.getLogger("lading.topic_tables")
GROUP_ROWS: Final = 1 << 17
COMPRESSION: Final = "zstd"
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

    def read(self, first: int, end: int) -> bytes:
        """Return the bytes [first, end). Raises FileNotFoundError if it was deleted meanwhile."""
        if self._path is None:
            return self._body[first:end]
        with self._path.open("rb") as file:
            return os.pread(file.fileno(), end - first, first)

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

    def __init__(self, directory: Path, workers: int, cache_bytes: int = CACHE_BYTES) -> None:
        self._directory = directory
        self._cache_bytes = cache_bytes
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="lading-render")
        self._files: dict[str, Future[RenderedFile]] = {}
        self._lock = threading.Lock()
        self._swept = time.monotonic()

    def get(self, key: str, render: Callable[[Any], FileFacts]) -> Future[RenderedFile]:
        """Return the file ``key`` as soon as it is there; ``render`` writes it into a binary stream."""
        with self._lock:
            future = self._files.get(key)
            if future is not None and self._is_there(future):
                return future
            future = self._files[key] = self._pool.submit(self._load_or_render, key, render)
        self._sweep_if_due()
        return future

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
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh = path.with_suffix(f".{threading.get_ident()}.new")
            try:
                with fresh.open("wb") as file:
                    facts = render(file)
                    facts.size_bytes = file.tell()
                facts_path.write_text(json.dumps(facts.to_document()))
                fresh.replace(path)
            finally:
                fresh.unlink(missing_ok=True)
            return RenderedFile(facts, path)
        except OSError as error:
            LOG.warning("%s: %s; the file is kept in memory, make room", path, error.strerror)
            stream = io.BytesIO()
            facts = render(stream)
            facts.size_bytes = stream.tell()
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
        total = sum(size for _, size, _ in held)
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

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def write_parquet(schema: TableSchema, batches: Iterable[pa.RecordBatch], stream: Any) -> FileFacts:
    """Write rows as a Parquet file and return its facts. The same rows give the same bytes in any batches."""
    collector = FactCollector(schema)
    arrow = schema.arrow
    with pq.ParquetWriter(stream, arrow, compression=COMPRESSION, write_page_index=True, store_schema=False) as writer:
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            collector.add(batch)
            waiting.append(batch)
            rows += batch.num_rows
            while rows >= GROUP_ROWS:
                table = pa.Table.from_batches(waiting, arrow)
                writer.write_table(table.slice(0, GROUP_ROWS).combine_chunks(), GROUP_ROWS)
                waiting = table.slice(GROUP_ROWS).to_batches()
                rows -= GROUP_ROWS
        if rows:
            writer.write_table(pa.Table.from_batches(waiting, arrow).combine_chunks(), GROUP_ROWS)
    facts = collector.finish()
    facts.splits = find_splits(writer.writer.metadata) if facts.rows else []
    return facts
