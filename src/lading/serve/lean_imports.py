"""Imports that the broker and short commands leave out, as they would cost more than the work itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final

WITHOUT_INIT: Final[Mapping[str, Mapping[str, str]]] = {
    "kafka": {},
    "kafka.protocol.admin": {},
    "kafka.protocol.consumer": {},
    "kafka.protocol.metadata": {},
    "kafka.protocol.producer": {},
    "uvicorn": {"Config": "uvicorn.config", "Server": "uvicorn.server"},
}
"""Packages whose ``__init__`` is left out, each with the names that others import from it and the module that has them.

The ``__init__`` of ``kafka`` imports clients although only the messages are used (150 ms of each start); those below it
read and build all messages of a kind although one is wanted (30 ms of a first request to create a topic); that of
``uvicorn`` imports a command line and its library (40 ms).
"""
WITHOUT_CODE: Final[Mapping[str, Mapping[str, str]]] = {
    "numpy._core._add_newdocs": {},
    "numpy._core._add_newdocs_scalars": {},
    "pyarrow.vendored.docscrape": {"NumpyDocString": __name__},
}
"""Modules whose code is not run, each with the names that others import from it and the module that has them.

Docstrings of NumPy (30 ms), which says itself that they may be left out, and the parser by which pyarrow describes the
options of its 286 compute functions in their docstrings (50 ms).
"""


class NumpyDocString(dict[str, list[Any]]):
    """A docstring without described parameters, in place of the parsed one that pyarrow asks for."""

    def __init__(self, text: str) -> None:
        super().__init__(Parameters=[])


class LeanImports(MetaPathFinder):
    """Leaves out imports that would cost memory, and time during which the broker cannot respond."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        if name == "pandas":
            # pyarrow looks for it at the first array: 250 ms
            raise ModuleNotFoundError("pandas is not used by this process", name=name)
        if name in WITHOUT_CODE:
            return ModuleSpec(name, _AttributeLoader(WITHOUT_CODE[name]))
        if name not in WITHOUT_INIT:
            return None
        found = PathFinder.find_spec(name, path)
        if found is None or found.loader is None:
            return None
        spec = ModuleSpec(name, _AttributeLoader(WITHOUT_INIT[name]), is_package=True)
        spec.submodule_search_locations = found.submodule_search_locations
        return spec


def install_lean_imports() -> None:
    """Leave out these imports from now on; modules that are imported already stay."""
    # NumPy's library for linear algebra, of which nothing here is used, makes a thread for each core when it is loaded,
    # and they spin: 100 ms of CPU on each core
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if not any(isinstance(finder, LeanImports) for finder in sys.meta_path):
        sys.meta_path.insert(0, LeanImports())


class _AttributeLoader(Loader):
    """Loads a module without running it; its attributes come from the modules that define them."""

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = homes

    def exec_module(self, module: ModuleType) -> None:
        module.__getattr__ = partial(self._find, module.__name__)  # type: ignore[method-assign]

    def _find(self, module: str, name: str) -> Any:
        if name not in self._homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
        return getattr(import_module(self._homes[name]), name)
