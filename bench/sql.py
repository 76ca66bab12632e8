"""``lading sql`` beside the same query in Spark, over the same topic of our broker, in turns."""

from __future__ import annotations

from typing import Any, Final

from bench._spark import spark_session, take_turns
from bench.mirror import CARRIERS, SQL, make_flights
from lading import testing, write_arrow
from lading.tables.query import QuerySource, run_query

QUESTION = "lading sql (DuckDB) / the same query in Spark's SQL, over one topic by its typed headers, two cores"
ROWS: Final = 2_000_000
ROUNDS: Final = 5


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: messages/s and CPU seconds a million of both, and their ratios; medians, a warm round before them."""
    rows, rounds = (ROWS // 20, 1) if quick else (ROWS, ROUNDS)
    expected = [(carrier, rows // 4) for carrier in sorted(CARRIERS)]
    with testing.broker(durability="os") as broker, spark_session() as spark:
        write_arrow(make_flights(rows), broker.url, "sent", headers=["carrier", "delay", "trace"], partitions=4)
        source = spark.read.format("lading").schema("carrier string, delay int")
        source.option("from", broker.url).option("topic", "sent").load().createOrReplaceTempView("sent")

        def query_by_lading() -> None:
            with run_query(SQL, QuerySource(broker.url, {})) as result:
                found = result.read_all().to_pylist()
            assert [(row["carrier"], row["n"]) for row in found] == expected

        def query_by_spark() -> None:
            assert [(row["carrier"], row["n"]) for row in spark.sql(SQL).collect()] == expected

        figures = take_turns(spark, {"lading sql": query_by_lading, "Spark": query_by_spark}, rounds)
    (ours_s, ours_cpu_s), (spark_s, spark_cpu_s) = figures.values()
    per_million = 1e6 / rows
    return [
        {
            "messages": rows,
            "lading sql messages/s": round(rows / ours_s), "Spark messages/s": round(rows / spark_s),
            "times messages/s": round(spark_s / ours_s, 2),
            "lading sql CPU s per M": round(ours_cpu_s * per_million, 2),
            "Spark CPU s per M": round(spark_cpu_s * per_million, 2),
            "times CPU": round(ours_cpu_s / spark_cpu_s, 3),
        }
    ]  # fmt: skip
