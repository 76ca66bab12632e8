"""Imports that the broker's process does without, or makes after its ready line."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final

LATE: Final = frozenset({"pyarrow.compute"})
"""Modules that are executed when something of them is used: this one makes 300 functions, 40 ms of each start, and
nothing that the first request of a protocol needs."""
_executing: Final = threading.RLock()


class LeanImports(MetaPathFinder):
    """Imports that would cost memory and time in which no client is answered.

    pandas, which pyarrow looks for at the first array (250 ms), and the clients of ``kafka``, of which only the
    messages in ``kafka.protocol`` are used (150 ms of each start), are left out; ``LATE`` waits for its first use.
    """

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used by the broker", name=name)
        if name in LATE:
            return _delay(PathFinder.find_spec(name, path))
        found = PathFinder.find_spec(name) if name == "kafka" else None
        if found is None or found.submodule_search_locations is None:
            return None
        # a package without an __init__ imports nothing by itself
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = list(found.submodule_search_locations)
        return spec


def load_late_modules() -> None:
    """Execute the modules of ``LATE`` that something has imported, so that no request waits for them."""
    for name in LATE & sys.modules.keys():
        module = sys.modules[name]
        if isinstance(module, _LateModule):
            module.execute()


class _LateModule(ModuleType):
    """A module that is executed when an attribute is asked for that it does not have yet.

    ``importlib.util.LazyLoader`` does that too, but two threads may execute it at a time (before Python 3.11.9).
    """

    def __getattr__(self, name: str) -> Any:
        self.execute()
        return object.__getattribute__(self, name)

    def execute(self) -> None:
        """Execute the module, once; other threads wait for it."""
        with _executing:
            loader = self.__dict__.pop("__late__", None)
            if loader is not None:
                loader.exec_module(self)
                self.__class__ = ModuleType  # type: ignore[assignment]


class _LateLoader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return _LateModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__late__"] = self._loader


def _delay(spec: ModuleSpec | None) -> ModuleSpec | None:
    if spec is not None and spec.loader is not None:
        spec.loader = _LateLoader(spec.loader)
    return spec
