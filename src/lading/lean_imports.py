"""Imports that the broker's process does without."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class LeanImports(MetaPathFinder):
    """Imports that would cost memory and time in which no client is answered.

    pandas, which pyarrow looks for at the first array (250 ms), and the clients of ``kafka``, of which only the
    messages in ``kafka.protocol`` are used (150 ms of each start).
    """

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used by the broker", name=name)
        found = PathFinder.find_spec(name) if name == "kafka" else None
        if found is None or found.submodule_search_locations is None:
            return None
        # a package without an __init__ imports nothing by itself
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = list(found.submodule_search_locations)
        return spec
