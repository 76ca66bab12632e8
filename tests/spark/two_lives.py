"""A stream whose driver ends after its tasks have sent; ``test_session.py`` runs its lives.

Each life is a Spark context of its own, so that Spark's numbers of tasks begin again at 0, as in a new driver; the JVM
is the same, which saves its start. The commit of the first life raises, and Spark aborts; that of the second one ends
the process that commits, without an abort.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from lading.spark import session
from lading.spark.source import LadingSource
from lading.spark.stream_sink import ArrowStreamWriter, StreamWriter
from lading.tables.plan.options import SinkOptions

LIVES = ("raise", "exit", "finish")


class EndingSource(LadingSource):
    """The source with a sink whose commit ends as the file ``life`` says."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        options = {name: value for name, value in self.options.items() if name != "token.life"}
        return EndingWriter(SinkOptions.parse(options), schema, Path(self.options["token.life"]))


class EndingWriter(ArrowStreamWriter):
    def __init__(self, options: SinkOptions, schema: StructType, life: Path) -> None:
        super().__init__(options, schema)
        self.life = life

    def commit(self, messages: Any, batchId: int) -> None:
        life = self.life.read_text()
        if life == "raise":
            raise RuntimeError("injected: raise")
        if life == "exit":
            os._exit(1)
        super().commit(messages, batchId)


def run(life: str, url: str, topic: str, directory: Path) -> str:
    """Run the stream until it ends; return in a word how it did."""
    (directory / "life").write_text(life)
    spark = session("two lives", "local[1]")
    spark.dataSource.register(EndingSource)
    query = (
        spark.readStream.schema("payload binary").parquet(str(directory / "source"))
        .writeStream.format("lading").option("to", url).option("topic", topic)
        .option("token.life", str(directory / "life"))
        .option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    try:
        query.awaitTermination()
        return "finished"
    except Exception as error:
        found = re.search(r"injected: (\w+)", str(error))
        return found[1] if found else "ended"
    finally:
        spark.stop()
