"""Where Numba finds compiled kernels: by the name of their module, so that package and cache can be moved together.

Numba's own locators put the path of a source into the path of its cache. An archive that Spark unpacks lies elsewhere
on each executor, and every one of them would compile for a minute.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

PACKAGE: Final = Path(__file__).resolve().parents[1]
COMPLETE: Final = "complete"
"""The file that says that a cache holds all kernels."""


class RelocatableLocator:
    """Finds the cache of one function below ``numba.config.CACHE_DIR``; Numba imports it by its name."""

    def __init__(self, source: Path, line: int, directory: Path) -> None:
        self._source = source
        self._line = line
        self._directory = directory

    @classmethod
    def from_function(cls, function: Callable[..., Any], source: str) -> RelocatableLocator | None:
        """Return the locator of a function of ``source``; None if nothing can be kept, and then Numba fails."""
        base = Path(import_module("numba.core.config").CACHE_DIR)
        path = Path(source).resolve()
        inside = path.is_relative_to(PACKAGE)
        name = ".".join(path.relative_to(PACKAGE.parent).parent.parts) if inside else _hash(str(path.parent).encode())
        found = cls(path, function.__code__.co_firstlineno, base / name)
        # a complete cache is only read, also where the directory is not writable
        if not (base / COMPLETE).exists():
            try:
                found.ensure_cache_path()
            except OSError:
                return None
        return found

    def ensure_cache_path(self) -> None:
        """Make the directory. Raises OSError if it cannot be written to."""
        self._directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=self._directory).close()

    def get_cache_path(self) -> str:
        """Return the directory that keeps the function."""
        return str(self._directory)

    def get_source_stamp(self) -> str:
        """Return a hash of the source: another one is compiled anew."""
        return _hash_source(self._source)

    def get_disambiguator(self) -> str:
        """Return what tells functions of one name apart."""
        return str(self._line)


@cache
def _hash_source(source: Path) -> str:
    return _hash(source.read_bytes())


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
