"""What is edited to add the toy: one line in each of three files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Final, NamedTuple


class Edit(NamedTuple):
    """A line that is added before another."""

    line: str
    before: str

    def apply(self, source: str) -> str:
        """Return the source with the line. Raises ValueError if its place is not there, or not there once."""
        if source.count(self.before) != 1 or "\n" in self.line:
            raise ValueError(f"{self.before!r} is there {source.count(self.before)} times")
        return source.replace(self.before, f"{self.line}\n{self.before}")


EDITS: Final[dict[str, Edit]] = {
    "lading.dialects.protocols": Edit(
        '    "tests.house.toy_protocol.dialect.protocol",', '    "lading.dialects.native.protocol",\n'
    ),
    "lading.settings.endpoints": Edit(
        '    toy: UnauthenticatedEndpoint = UnauthenticatedEndpoint(address=Address("127.0.0.1", 7777))',
        "    schema_registry: SchemaRegistrySettings = DEFAULTS\n",
    ),
    "tests.behaviours.rows": Edit(
        """    Client("python-toy", "toy", lambda at: PythonSession(f"toy://{at['toy']}"), """
        'dict.fromkeys(GROUPS, "none")),',
        '    Client("iggy-http", "iggy_http",',
    ),
}


class _EditedLoader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path).decode()
        return compile(EDITS[fullname].apply(source), self.path, "exec", dont_inherit=True)


class EditingFinder:
    """Finds the edited modules, where they are, with their line added."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        if name not in EDITS:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _EditedLoader(name, spec.origin)
        return spec


def install() -> None:
    """Let this process import the edited modules."""
    sys.meta_path.insert(0, EditingFinder)
