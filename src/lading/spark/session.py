"""``session()``: a Spark session without any set-up; ``register()``: the format in an existing session."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..model.errors import LocalError
from ..model.extras import describe_install
from .failures import lead_with_own_errors, lead_with_own_errors_of_connect
from .java import Java, find_java, require_java
from .jvm import starting
from .workers import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as SparkSession

__all__ = ["Java", "SparkMissing", "find_java", "register", "session"]

MASTER = "local[*]"
SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Environment variable in which a driver that spark-submit has started finds the port of its JVM."""
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.python.daemon.module": "lading.spark.daemon",
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
}
"""Default settings of a local session."""
SHARED = ("spark.sql.session.timeZone", "spark.sql.execution.arrow.pyspark.enabled",
          "spark.sql.python.filterPushdown.enabled", "spark.python.daemon.module")  # fmt: skip
"""Settings that also apply to a session under ``spark-submit``, unless its own settings differ."""


class SparkMissing(LocalError, ImportError):
    """PySpark is not installed."""


if importlib.util.find_spec("pyspark") is None:
    raise SparkMissing(f"Spark is not installed; {describe_install('spark')} (the broker and the client do without)")


def session(app_name: str = "lading", master: str = MASTER, **conf: Any) -> SparkSession:
    """Return the running session of this process, or a new one, with the format ``lading`` registered.

    ``conf`` are Spark settings, with ``_`` for ``.`` in keywords: ``spark_ui_enabled=True``, or a mapping
    ``**{"spark.ui.enabled": "true"}``. A new local session listens on loopback only, uses UTC, has no UI and logs
    errors only; its workers run this interpreter. Under ``spark-submit`` it has that command's master, name and
    settings, to which ``conf`` only adds. Raises LocalError if Java is missing.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    settings = {_setting_name(name): _to_text(value) for name, value in conf.items()}
    if active is not None:
        for name, value in settings.items():
            if active.conf.isModifiable(name):
                active.conf.set(name, value)
        register(active)
        return active
    if SUBMITTED in os.environ:
        submitted = _join_submitted({**{name: LOCAL[name] for name in SHARED}, **settings})
        register(submitted)
        return submitted
    local = master.startswith("local")
    builder = SparkSession.builder.appName(app_name).master(master)
    defaults = {**LOCAL, "spark.driver.extraJavaOptions": _java_options(settings)} if local else {}
    for name, value in {**defaults, **settings}.items():
        builder = builder.config(name, value)
    with _prepare_environment(require_java(), local), starting():
        made: SparkSession = builder.getOrCreate()
    register(made)
    return made


def connect(url: str) -> SparkSession:
    """Return a session of the Spark Connect server at ``url``, with the format ``lading`` registered.

    The server's Python needs Lading. Raises LocalError if the client's libraries are missing, or without a server.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    shown = hide_parameters(url)
    try:
        made: SparkSession = SparkSession.builder.remote(url).getOrCreate()
    except ImportError as error:
        raise LocalError(
            f"--remote {shown}: the client of Spark Connect lacks a package ({error}); pip install 'pyspark[connect]'"
        ) from None
    except PySparkException as error:
        reason = str(error).partition("\n")[0].replace(url, shown)
        raise LocalError(f"--remote {shown}: {reason}; write sc://HOST:15002, the address of a server") from None
    try:
        # nothing is asked of a server before
        _ = made.version
        register(made)
    except Exception as error:
        if isinstance(error, PySparkException) or type(error).__module__.startswith("grpc"):
            reason = str(error).strip().partition("\n")[0].replace(url, shown)
            raise LocalError(
                f"--remote {shown}: the server does not respond ({reason}); start one, or check it"
            ) from None
        raise
    return made


def hide_parameters(url: str) -> str:
    """Return the URL of a Spark Connect server as errors show it: its parameters may hold a token."""
    return url.partition(";")[0].rstrip("/")


def _join_submitted(settings: dict[str, str]) -> SparkSession:
    """Return a session in the JVM that spark-submit started, whose own settings come first."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    # before that settings are those of this process alone
    SparkContext._ensure_initialized()
    defaults = SparkConf()
    for name, value in settings.items():
        defaults.setIfMissing(name, value)
    made: SparkSession = SparkSession.builder.config(conf=defaults).getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def activate(spark: SparkSession) -> None:
    """Make ``spark`` the session of this thread as well: Spark looks up formats in the session of its caller."""
    from pyspark.sql import SparkSession

    # Spark 3.5 has one class of sessions in Java only
    find_class = getattr(SparkSession, "_get_j_spark_session_class", lambda jvm: jvm.SparkSession)
    find_class(spark._jvm).setActiveSession(spark._jsparkSession)


def register(spark: SparkSession) -> None:
    """Add the format ``lading`` and the header functions (docs/reference/spark.md) to a session. Idempotent.

    Our errors inside Spark's are then shown alone, without its stack traces. On a cluster the executors need the
    package, too. Releases of Spark that lack one of the two get the other (``releases``).
    """
    from .functions import register_functions
    from .releases import Feature

    if Feature.DATA_SOURCE.is_offered:
        _register_source(spark)
    if Feature.SQL_FUNCTIONS.is_offered:
        register_functions(spark)
    if is_connect(spark):
        lead_with_own_errors_of_connect()
    else:
        lead_with_own_errors()


def is_connect(spark: object) -> bool:
    """Return whether a session is one of Spark Connect: a client of a server, without a JVM of its own."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def _register_source(spark: SparkSession) -> None:
    from pyspark.errors import AnalysisException

    from .source import LadingSource

    # Spark warns of a source that is replaced by itself, which helps no user
    with quiet("py4j"):
        try:
            spark.dataSource.register(LadingSource)
        except AnalysisException as error:
            # Spark 4.0 refuses the name that it has found by itself (pyspark_lading); later releases replace it
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise


def _setting_name(name: str) -> str:
    return name if "." in name else name.replace("_", ".")


def _to_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _java_options(settings: dict[str, str]) -> str:
    own = settings.pop("spark.driver.extraJavaOptions", "")
    return f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()} -Duser.timezone=UTC {own}".strip()


@contextmanager
def _prepare_environment(java: Java, local: bool) -> Iterator[None]:
    """Set the environment that Spark's launcher and workers read; restore JAVA_HOME when the JVM runs."""
    if local:
        # any other interpreter would lack the packages of this one
        os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"] = worker_python(), sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(java.home)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("JAVA_HOME", None)
        else:
            os.environ["JAVA_HOME"] = before


@contextmanager
def quiet(logger: str) -> Iterator[None]:
    """Silence a logger in this block, because what it would log is raised and reported as well."""
    log = logging.getLogger(logger)
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)
