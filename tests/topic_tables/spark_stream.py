"""A stream by Spark with Iceberg's own runtime, with a login, that goes on until its standard input ends.

    python spark_stream.py JARS CATALOG TOKEN DIRECTORY

Prints the offsets of all rows that were written so far after each line of its input. A query that ended, as it found
the catalog closed, is started again from its checkpoint, as a user's supervisor does.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from spark_reader import open_session  # type: ignore[import-not-found]

RETRIES = 60


def main() -> None:
    """Stream the table ``t.default.lasting`` into files."""
    jars, address, token, directory = sys.argv[1:5]
    spark = open_session(jars, address, {"spark.sql.catalog.t.token": token})

    def start() -> Any:
        stream = spark.readStream.format("iceberg").load("t.default.lasting").writeStream.format("parquet")
        stream = stream.option("path", f"{directory}/out").option("checkpointLocation", f"{directory}/checkpoint")
        return stream.trigger(processingTime="200 milliseconds").start()

    query = start()
    while line := sys.stdin.readline():
        wanted, left = int(line), RETRIES
        offsets: list[int] = []
        while len(offsets) < wanted and left:
            left -= 1
            try:
                if not query.isActive:
                    sys.stderr.write(f"the query ended: {query.exception()}\n")
                    query = start()
                query.processAllAvailable()
                offsets = sorted(row[0] for row in spark.read.parquet(f"{directory}/out").select("offset").collect())
            except Exception as error:
                sys.stderr.write(f"again: {error}\n")
                time.sleep(1)
        sys.stdout.write(json.dumps(offsets) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
