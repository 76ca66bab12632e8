"""Which test files one process runs: those that share a Spark session, whose start takes ten seconds, stay together."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

ROOMS = {
    "tests/docs/": "pages",
    "tests/spark/": "spark",
    "tests/pipeline/test_figures.py": "spark",
    "tests/pipeline/test_spark.py": "spark",
    "tests/pipeline/test_sql.py": "spark",
    "tests/properties/test_filter_everywhere.py": "spark",
}
"""By how their paths begin."""


class Together(LoadFileScheduling):  # type: ignore[misc]
    """Hands out files, and those of a room at once."""

    def _split_scope(self, nodeid: str) -> str:
        rooms = (room for path, room in ROOMS.items() if nodeid.startswith(path))
        return next(rooms, super()._split_scope(nodeid))
