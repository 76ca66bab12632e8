"""Topics in DuckDB: a relation, or a name of a connection, of which projection and filters are pushed down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..client.scan import TopicScan
from ..model.errors import LocalError
from ..model.extras import describe_install
from .arrow import TopicDataset

if TYPE_CHECKING:
    import duckdb


def to_relation(scan: TopicScan, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
    """Return a relation of a scan, ``to_relation(scan).filter("delay > 60").aggregate("count(*)")``.

    It is read while a query runs, and anew by each. Raises LocalError if DuckDB is not installed.
    """
    return (connection or _require_duckdb()).from_arrow(TopicDataset(scan))


def register(connection: duckdb.DuckDBPyConnection, name: str, scan: TopicScan) -> None:
    """Let the queries of a connection read a scan as the table ``name``."""
    connection.register(name, TopicDataset(scan))


def _require_duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise LocalError(f"duckdb: the package is not installed; {describe_install('duckdb')}") from None
    return duckdb
