"""Upkeep by a run itself: tables that are optimized at an interval, and a hint for those that need it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from pyarrow.lib import ArrowException

from ...model.errors import LadingError
from ..formats.directory import OWNER
from ..formats.manifest import Manifest
from ..formats.registry import open_table
from ..storage.files import OWN, read_document, write_document
from ..storage.object_path import TablePath
from .optimize import optimize_table
from .shape import SMALL_BYTES, SMALL_FILES_MAX, measure_shape

LOG: Final = logging.getLogger("lading.tables")
INTERVALS_S: Final = {"hourly": 3_600.0, "daily": 86_400.0, "weekly": 604_800.0}
EARLY: Final = 0.9
"""Tables are optimized when this share of the interval is over, as a nightly job does not run at exact intervals."""


class UpkeepRecord:
    """The record of a pipeline on the upkeep of its tables, in its state directory."""

    def __init__(self, own: Path) -> None:
        self._path = own / "upkeep.json"
        self._held: dict[str, Any] = read_document(self._path) or {"version": 1, "optimized_s": 0.0, "hinted": []}

    def hint_small_files(self, tables: Iterable[TablePath], last: Manifest | None) -> None:
        """Warn of a table if one of its partitions has many small files; once, until it has fewer again.

        Tables are not looked at as long as manifests like the ``last`` one have too few files for that.
        """
        if last is None or last.number * max(1, len(last.files)) <= SMALL_FILES_MAX:
            return
        hinted, before = set[str](), set(self._held["hinted"])
        for place in tables:
            if not (place / OWN / OWNER).exists():
                continue
            try:
                shape = measure_shape(open_table(place))
            except LadingError as error:
                LOG.warning("the table %s: its files cannot be counted: %s", place, error)
                continue
            if shape.most_small_files <= SMALL_FILES_MAX:
                continue
            hinted.add(str(place))
            if str(place) not in before:
                LOG.warning(
                    "the table %s has %d files below %d MiB in one partition, which make reading slow: lading table "
                    "optimize %s", place, shape.most_small_files, SMALL_BYTES >> 20, place,
                )  # fmt: skip
        if hinted != before:
            self._write(hinted=sorted(hinted))

    def optimize_if_due(
        self, tables: Iterable[TablePath], interval_s: float, now_s: float, check: Callable[[], None] = lambda: None
    ) -> bool:
        """Optimize the tables if the interval is over; returns whether it was. A table that fails is warned of."""
        if now_s - self._held["optimized_s"] < interval_s * EARLY:
            return False
        for place in tables:
            if (place / OWN / OWNER).exists():
                try:
                    optimize_table(open_table(place), check=check)
                except (LadingError, OSError, ArrowException) as error:
                    LOG.warning("the table %s is not optimized: %s", place, error)
        self._write(optimized_s=now_s)
        return True

    def _write(self, **facts: Any) -> None:
        self._held |= facts
        write_document(self._path, self._held)
