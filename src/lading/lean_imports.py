"""Imports that the broker and short commands do without, as they cost more than what they are there to do."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType, SimpleNamespace
from typing import Any, Final

WITHOUT_INIT: Final[Mapping[str, Mapping[str, str]]] = {
    "kafka": {},
    "kafka.protocol.admin": {},
    "kafka.protocol.consumer": {},
    "kafka.protocol.metadata": {},
    "kafka.protocol.producer": {},
    "uvicorn": {"Config": "uvicorn.config", "Server": "uvicorn.server"},
}
"""Packages whose ``__init__`` is left out; of each what others take from it, and the module that has it.

That of ``kafka`` imports clients, of which only the messages are used (150 ms of each start), those below it read and
build all messages of a kind where one is wanted (30 ms of a first request to create a topic), that of ``uvicorn`` has a
command line with its library (40 ms).
"""
WITHOUT_CODE: Final = ("numpy._core._add_newdocs", "numpy._core._add_newdocs_scalars")
"""Modules of which nothing is run: docstrings of NumPy (30 ms), which says itself that they may be left out."""
COMPUTE: Final = "pyarrow.compute"
"""A module that writes a Python function with a docstring for each of Arrow's, some 300 (70 ms)."""
DOCSTRING_PARSER: Final = "pyarrow.vendored.docscrape"
RENAMED: Final[Mapping[str, str]] = {"and_": "and", "or_": "or", "utf8_zfill": "utf8_zero_fill"}
"""Names in it that are not those of Arrow: Python keeps two for itself, and one has a short form."""


class LeanImports(MetaPathFinder):
    """Leaves out what would cost memory, and time in which nobody is answered."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        if name == "pandas":
            # pyarrow looks for it at the first array: 250 ms
            raise ModuleNotFoundError("pandas is not used by this process", name=name)
        if name in WITHOUT_CODE:
            return ModuleSpec(name, _Attributes({}))
        if name not in WITHOUT_INIT and name != COMPUTE:
            return None
        found = PathFinder.find_spec(name, path)
        if found is None or found.loader is None:
            return None
        if name == COMPUTE:
            found.loader = _ComputeLoader(found.loader)
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


class _ComputeLoader(Loader):
    """Runs ``pyarrow.compute`` so that each of its functions is made when it is first looked for, in 10 us.

    They are made by the module's own code, without signature and docstring. A pyarrow that is built otherwise is run as
    it is, which costs time and nothing else.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        before = dict(vars(module))
        try:
            self._run_without_functions(module)
        except Exception:
            vars(module).clear()
            vars(module).update(before)
            self._loader.exec_module(module)

    def _run_without_functions(self, module: ModuleType) -> None:
        native: Any = import_module("pyarrow._compute")
        find_registry = native.function_registry
        parser = sys.modules.get(DOCSTRING_PARSER)
        # one name is read again by the module itself, to give it a second one
        module.utf8_zero_fill = None  # type: ignore[attr-defined]
        native.function_registry = lambda: SimpleNamespace(list_functions=tuple)
        sys.modules[DOCSTRING_PARSER] = ModuleType(DOCSTRING_PARSER)
        try:
            self._loader.exec_module(module)
        finally:
            native.function_registry = find_registry
            if parser is None:
                del sys.modules[DOCSTRING_PARSER]
            else:
                sys.modules[DOCSTRING_PARSER] = parser
        found = vars(module)
        del found["utf8_zero_fill"], found["utf8_zfill"]
        make, find_options = found["_make_generic_wrapper"], found["_get_options_class"]
        found["function_registry"] = find_registry
        registry = find_registry()

        def find_function(name: str) -> Any:
            try:
                function = registry.get_function(RENAMED.get(name, name))
            except KeyError:
                raise AttributeError(f"module {COMPUTE!r} has no attribute {name!r}", name=name) from None
            made = found[name] = make(name, function, find_options(function), function.arity)
            made.__name__ = name
            return made

        module.__getattr__ = find_function  # type: ignore[method-assign]
