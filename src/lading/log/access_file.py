"""``access.json``: users, tokens and rules of a data directory, as one document that is replaced as a whole.

It holds salted hashes, no passwords and no tokens; only its owner may read it. An unreadable file is an error, never an
empty table: a broker without users asks for no passwords.

A checksum covers every byte of it, and each change has a number. The number of the last change is also stored in two
other places, the file ``rights.serial`` and the catalog, which are written after it. A file is refused if its number is
lower than one of these, or if it is missing although one of them has a number. Only ``lading user reset`` starts anew.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ..model.checked_document import FIELD, is_intact, pack_document
from ..model.errors import CorruptLog, LadingError
from .disk import Disk, RealDisk, read_all, replace, sync_directory
from .formats import ACCESS, ACCESS_MARK, GATE

LOG: Final = logging.getLogger("lading.log")
FILE_NAME: Final = ACCESS.file
MARK_NAME: Final = ACCESS_MARK.file
CHECKED_FROM: Final = 4
"""The first version with a checksum and a number."""
_UNKNOWN: Final = 1
"""The value of a mark whose number cannot be read: the file has existed."""


class AccessFile:
    """The file of one data directory."""

    def __init__(self, data: Path, disk: Disk | None = None) -> None:
        self.path = data / FILE_NAME
        self.serial = 0
        """The number of the change that was loaded or saved last; 0 before the first."""
        self._mark = data / MARK_NAME
        self._disk = disk or RealDisk()

    def load(self, recorded_serial: int = 0) -> dict[str, Any] | None:
        """Return the document, or None if there never was one.

        ``recorded_serial`` is the number in the catalog. Raises CorruptLog if the document is invalid, missing or older
        than the last one, NewerFormat if it is of a later Lading.
        """
        known = max(recorded_serial, self._read_mark())
        data = self._read_bytes()
        if data is None:
            if known:
                raise self._make_damage_error(
                    "is missing, but users were set up here: without them the broker would let everybody in"
                )
            return None
        document = self._parse(data)
        serial = document.get("serial", 0)
        if serial < known:
            raise self._make_damage_error(
                f"is an older copy (change {serial}, the last one was {known}): users and rights that were taken away "
                "since would be back"
            )
        self.serial = serial
        return document

    @classmethod
    def read(cls, path: Path) -> dict[str, Any] | None:
        """Return the document of any such file, however old, or None if it does not exist. Raises as ``load``."""
        file = cls(path.parent)
        file.path = path
        data = file._read_bytes()
        return None if data is None else file._parse(data)

    def _read_bytes(self) -> bytes | None:
        try:
            return read_all(self._disk, self.path)
        except OSError as error:
            raise self.damage_error(error.strerror or error) from None

    def _parse(self, data: bytes) -> dict[str, Any]:
        try:
            document = GATE.parse_known_document(ACCESS, data, self.path)
        except ValueError as error:
            raise self.damage_error(error) from None
        version = document.get("version") if isinstance(document, dict) else None
        if version not in ACCESS.reads:
            raise self.damage_error("it has no version")
        is_checked = version >= CHECKED_FROM
        if is_checked != (FIELD in document) or (is_checked and not is_intact(data)):
            raise self.damage_error("its checksum does not match")
        return dict(document)

    def save(self, document: Mapping[str, Any]) -> None:
        """Replace the document; on disk on return, old or new after a crash. Raises OSError. For any thread."""
        serial = self.serial + 1
        replace(self._disk, self.path, pack_document({"version": ACCESS.written, "serial": serial, **document}))
        self.serial = serial
        self.mark()

    def mark(self) -> None:
        """Write the number of the last change into ``rights.serial``; on a full disk the next start or
        change does it.
        """
        if self.serial in (0, self._read_mark()):
            return
        try:
            replace(self._disk, self._mark, pack_document({"version": ACCESS_MARK.written, "serial": self.serial}))
        except OSError as error:
            LOG.warning("%s cannot be written: %s", self._mark, error.strerror or error)

    def start_anew(self, document: Mapping[str, Any], recorded_serial: int, aside: str) -> None:
        """Write a document that counts as the last change, whatever exists; the old file is kept under the name
        ``aside``.

        Raises OSError.
        """
        known = [recorded_serial, self._read_mark()]
        with suppress(LadingError):
            self.load(recorded_serial)
        with suppress(FileNotFoundError):
            self._disk.rename(self.path, self.path.with_name(aside))
            sync_directory(self._disk, self.path.parent)
        self.serial = max(self.serial, *known)
        self.save(document)

    def find_difference(self, document: Mapping[str, Any]) -> str | None:
        """Return what is wrong with the file of a broker that runs with ``document``, or None if it has
        that content.
        """
        serial = self.serial
        if not serial:
            return None
        other = AccessFile(self.path.parent, self._disk)
        try:
            found = other.load(serial) or {}
        except LadingError as error:
            return str(error)
        if other.serial == serial and {key: found.get(key) for key in document} != dict(document):
            return f"{self.path} was replaced by another one"
        return None

    def _read_mark(self) -> int:
        try:
            data = read_all(self._disk, self._mark)
            if data is None:
                return 0
            document = GATE.parse_known_document(ACCESS_MARK, data, self._mark)
            serial = document["serial"] if is_intact(data) else _UNKNOWN
            return serial if type(serial) is int else _UNKNOWN
        except (OSError, ValueError, KeyError, TypeError):
            return _UNKNOWN

    def damage_error(self, problem: object) -> CorruptLog:
        """Return the error for a document that is invalid."""
        return self._make_damage_error(f"is damaged ({problem}), so the rights of users are unknown")

    def _make_damage_error(self, problem: str) -> CorruptLog:
        data = self.path.parent
        return CorruptLog(
            f"{self.path} {problem}; take it from a backup (lading restore BACKUP OTHER, then lading user reset --data "
            f"{data} --file OTHER/{FILE_NAME}), or start without users: lading user reset --data {data}"
        )
