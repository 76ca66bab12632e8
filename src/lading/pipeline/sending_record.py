"""Record of what a batch was sending to topics, so that a repeat after a crash sends what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ..tables.storage.files import read_document, write_document

VERSION: Final = 1


@dataclass
class SendingRecord:
    """The topics of one manifest: those that have all messages, and for the others their end offsets before the
    first."""

    path: Path
    number: int
    _done: set[str] = field(default_factory=set)
    _ends: dict[str, dict[int, int]] = field(default_factory=dict)
    _refused: dict[str, dict[int, str]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, number: int) -> SendingRecord:
        """Return the record of manifest ``number``, empty if it does not exist or belongs to another manifest."""
        held = read_document(path)
        if held is None or held["number"] != number:
            return cls(path, number)
        ends = {name: {int(part): end for part, end in row.items()} for name, row in held["ends"].items()}
        refused = {
            name: {int(at): sentence for at, sentence in row.items()} for name, row in held.get("refused", {}).items()
        }
        return cls(path, number, set(held["done"]), ends, refused)

    @property
    def refused(self) -> Mapping[str, Mapping[int, str]]:
        """The messages that targets refused: target → place among its messages → why."""
        return self._refused

    def note_refused(self, target: str, messages: Mapping[int, str]) -> None:
        """Note that a target refuses messages, which are left out from now on."""
        self._refused.setdefault(target, {}).update(messages)
        self._write()

    def is_done(self, target: str) -> bool:
        """Return whether a target has all of its messages."""
        return target in self._done

    def note_begin(self, target: str, ends: Mapping[int, int]) -> Mapping[int, int] | None:
        """Note the end offsets of a target's partitions before anything is sent.

        Returns what was noted before if this is a repeat, of which some may have arrived, else None.
        """
        if target in self._ends:
            return self._ends[target]
        self._ends[target] = dict(ends)
        self._write()
        return None

    def note_done(self, target: str) -> None:
        """Note that a target has all of its messages."""
        self._done.add(target)
        self._write()

    def forget(self) -> None:
        """Delete the record, when the manifest needs it no more."""
        self.path.unlink(missing_ok=True)

    def _write(self) -> None:
        document: dict[str, Any] = {
            "version": VERSION,
            "number": self.number,
            "done": sorted(self._done),
            "ends": self._ends,
            "refused": self._refused,
        }
        write_document(self.path, document)
