"""``access.json``: users, tokens and rules of a data directory, as one document that is replaced as a whole.

It holds salted hashes, no passwords and no tokens; only its owner may read it. What cannot be read is an error, never
an empty table: without users a broker asks for no passwords.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..model.errors import CorruptLog
from .disk import Disk, RealDisk, read_all, replace
from .formats import ACCESS, GATE

FILE_NAME: Final = "access.json"


class AccessFile:
    """The file of one data directory."""

    def __init__(self, data: Path, disk: Disk | None = None) -> None:
        self.path = data / FILE_NAME
        self._disk = disk or RealDisk()

    def load(self) -> dict[str, Any] | None:
        """Return the document, or None if there is none. Raises CorruptLog if it is invalid, NewerFormat if later."""
        data = read_all(self._disk, self.path)
        if data is None:
            return None
        try:
            document = GATE.parse_known_document(ACCESS, data, self.path)
        except ValueError as error:
            raise self.damage_error(error) from None
        if not isinstance(document, dict) or document.get("version") not in ACCESS.reads:
            raise self.damage_error("it has no version")
        return document

    def save(self, document: Mapping[str, Any]) -> None:
        """Replace the document; on disk on return, old or new after a crash. Raises OSError. For any thread."""
        text = json.dumps({"version": ACCESS.written, **document}, ensure_ascii=False, indent=1, sort_keys=True)
        replace(self._disk, self.path, text.encode())

    def damage_error(self, problem: object) -> CorruptLog:
        """Return the error for a document that is none."""
        return CorruptLog(
            f"{self.path} is damaged ({problem}), so the rights of users are unknown; restore it from a backup, or "
            "delete it to start without users"
        )
