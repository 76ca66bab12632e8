"""A stream by Spark with Iceberg's own runtime, with a login, that goes on until its standard input ends.

    python spark_stream.py JARS CATALOG TOKEN DIRECTORY

Prints the offsets of all rows that were written so far, at the start and after each line of its input.
"""

from __future__ import annotations

import json
import sys

from spark_reader import open_session  # type: ignore[import-not-found]


def main() -> None:
    """Stream the table ``t.default.lasting`` into files."""
    jars, address, token, directory = sys.argv[1:5]
    spark = open_session(jars, address, {"spark.sql.catalog.t.token": token})
    stream = spark.readStream.format("iceberg").load("t.default.lasting").writeStream.format("parquet")
    stream = stream.option("path", f"{directory}/out").option("checkpointLocation", f"{directory}/checkpoint")
    query = stream.trigger(processingTime="200 milliseconds").start()
    while True:
        query.processAllAvailable()
        rows = spark.read.parquet(f"{directory}/out").select("offset").collect()
        sys.stdout.write(json.dumps(sorted(row[0] for row in rows)) + "\n")
        sys.stdout.flush()
        if not sys.stdin.readline():
            return


if __name__ == "__main__":
    main()
