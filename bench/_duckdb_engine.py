"""DuckDB with its Iceberg extension, in a Python of its own: runs each line of its standard input as a query.

    python _duckdb_engine.py CATALOG

Prints one JSON document a query: its seconds, when it ended by the monotonic clock of the machine, and its rows. The
extensions come as wheels, since their own download needs a network; they exist for DuckDB 1.5.5, while Lading itself
needs 2.0.
"""

from __future__ import annotations

import json
import sys
import time

import duckdb  # type: ignore[import-not-found,unused-ignore]
import duckdb_extensions  # type: ignore[import-not-found,unused-ignore]


def main() -> None:
    """Attach the catalog as ``t`` and answer until the input ends."""
    connection = duckdb.connect()
    for extension in ("avro", "httpfs", "iceberg"):
        duckdb_extensions.import_extension(extension, con=connection)
        connection.load_extension(extension)
    address = sys.argv[1]
    connection.sql(f"ATTACH '' AS t (TYPE iceberg, ENDPOINT '{address}', AUTHORIZATION_TYPE 'none', READ_ONLY)")
    while line := sys.stdin.readline():
        begun = time.monotonic()
        rows = connection.sql(json.loads(line)).fetchall()
        ended = time.monotonic()
        sys.stdout.write(json.dumps({"s": ended - begun, "ended": ended, "rows": rows}, default=str) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
