"""The sizes that all writers of data files share, and a file that gathers small pieces and hashes what is written."""

from __future__ import annotations

import io
from typing import IO, Any, Final

import xxhash

from ..storage.files import sync_file
from .manifest import HASH_NAME

GROUP_ROWS: Final = 131_072
GROUP_BYTES: Final = 64 << 20
"""A row group is written when it has this many rows or about this many bytes of Arrow."""
WRITE_BYTES: Final = 256 << 10
"""A file is written in pieces of at least this size."""
FILE_BYTES: Final = 256 << 20
"""A file is closed when it has this many bytes, by default."""
COMPRESSION: Final = "snappy"


class HashingFile(io.RawIOBase):
    """A file that is only appended to, and knows the hash of what was written. Only ``sync`` writes the last of it."""

    def __init__(self, file: IO[bytes] | io.RawIOBase) -> None:
        super().__init__()
        self._file = file
        self._digest = xxhash.xxh3_128()
        self._waiting = bytearray()
        self.size_bytes = 0

    @property
    def hash(self) -> str:
        """The hash of the bytes written to disk, in the form of manifests; after ``sync`` that is the whole file."""
        return f"{HASH_NAME}:{self._digest.hexdigest()}"

    def writable(self) -> bool:
        """Return True: the file takes data (io.RawIOBase)."""
        return True

    def write(self, data: Any) -> int:
        """Take all of ``data``, which comes in pieces of some hundred bytes; OSError if the disk refuses."""
        view = memoryview(data).cast("B")
        self._waiting += view
        self.size_bytes += len(view)
        if len(self._waiting) >= WRITE_BYTES:
            self._write_waiting()
        return len(view)

    def _write_waiting(self) -> None:
        waiting, self._waiting = memoryview(self._waiting), bytearray()
        self._digest.update(waiting)
        done = 0
        while done < len(waiting):
            done += self._file.write(waiting[done:])

    def tell(self) -> int:
        """Return the number of bytes taken so far."""
        return self.size_bytes

    def sync(self) -> None:
        """Bring it to disk."""
        self._write_waiting()
        sync_file(self._file)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if not self.closed:
            self._file.close()
        super().close()
