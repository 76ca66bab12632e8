"""Imports that the broker's process does without, or puts off until it is ready."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from threading import RLock
from types import ModuleType
from typing import Any, Final

WITHOUT_INIT: Final[Mapping[str, Mapping[str, str]]] = {
    "kafka": {},
    "uvicorn": {"Config": "uvicorn.config", "Server": "uvicorn.server"},
}
"""Packages whose ``__init__`` is left out; of each what others take from it, and the module that has it.

That of ``kafka`` imports clients, of which only the messages are used (150 ms of each start), that of ``uvicorn`` a
command line with its library (40 ms).
"""
WITHOUT_CODE: Final = ("numpy._core._add_newdocs", "numpy._core._add_newdocs_scalars")
"""Modules of which nothing is run: docstrings of NumPy (30 ms), which says itself that they may be left out."""
DEFERRED: Final = ("pyarrow.compute",)
"""Modules that are run when something of them is first used: a Python function for each of Arrow's (70 ms)."""


class LeanImports(MetaPathFinder):
    """Imports that would cost memory and time in which no client is answered."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        if name == "pandas":
            # pyarrow looks for it at the first array: 250 ms
            raise ModuleNotFoundError("pandas is not used by the broker", name=name)
        if name in WITHOUT_CODE:
            return ModuleSpec(name, _Attributes({}))
        if name not in WITHOUT_INIT and name not in DEFERRED:
            return None
        found = PathFinder.find_spec(name, path)
        if found is None or found.loader is None:
            return None
        if name in DEFERRED:
            found.loader = _DeferredLoader(found.loader)
            return found
        spec = ModuleSpec(name, _Attributes(WITHOUT_INIT[name]), is_package=True)
        spec.submodule_search_locations = found.submodule_search_locations
        return spec


def install_lean_imports() -> None:
    """Have this process import so from now on; what is imported already stays."""
    # NumPy's library for linear algebra, of which nothing here is used, makes a thread for each core when it is loaded,
    # and they spin: 100 ms of CPU on each core
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if not any(isinstance(finder, LeanImports) for finder in sys.meta_path):
        sys.meta_path.insert(0, LeanImports())


def load_deferred() -> None:
    """Run what was put off, if it was imported: who first uses it does not wait."""
    for name in DEFERRED:
        loader = getattr(import_module(name).__spec__, "loader", None)
        if isinstance(loader, _DeferredLoader):
            loader.run(import_module(name))


class _Attributes(Loader):
    """Runs nothing; attributes come from the modules that have them."""

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = homes

    def exec_module(self, module: ModuleType) -> None:
        module.__getattr__ = partial(self._find, module.__name__)  # type: ignore[method-assign]

    def _find(self, module: str, name: str) -> Any:
        if name not in self._homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
        return getattr(import_module(self._homes[name]), name)


class _DeferredLoader(Loader):
    """Runs a module when an attribute of it is first looked for, by one thread; others wait.

    ``importlib.util.LazyLoader`` of Python 3.11 runs it once for each thread that comes meanwhile.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._lock = RLock()
        self._is_begun = False

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__getattr__ = partial(self._find, module)  # type: ignore[method-assign]

    def run(self, module: ModuleType) -> None:
        """Run it, unless it was, or is just being run by this thread."""
        with self._lock:
            if self._is_begun or module.__spec__ is None:
                return
            self._is_begun = True
            try:
                # beside it, so that no other thread sees a part: names of pyarrow.compute are first what is generated
                # for them and then what is written for them
                whole = module_from_spec(module.__spec__)
                self._loader.exec_module(whole)
            except BaseException:
                self._is_begun = False
                raise
            vars(module).update(vars(whole))

    def _find(self, module: ModuleType, name: str) -> Any:
        self.run(module)
        try:
            return vars(module)[name]
        except KeyError:
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name) from None
