"""Readers of tables on object stores that nobody here wrote: Polars, deltalake, pyiceberg."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties
from pyiceberg.utils.config import Config

from .cloud_servers import CloudServer
from .object_server import REGION, ObjectServer

PLAIN = {"allow_http": "true"}
READERS: dict[str, dict[str, str]] = {}
"""What pyiceberg's own file systems need, by the scheme of the store; for S3 it is the environment's."""


class ArrowFiles(PyArrowFileIO):
    """pyiceberg's way to files by Arrow; for Azure, where pyiceberg takes adlfs, names are without the account."""

    @staticmethod
    def parse_location(location: str, properties: Properties = EMPTY_DICT) -> tuple[str, str, str]:
        """Return scheme, account and name of a file."""
        scheme, netloc, path = PyArrowFileIO.parse_location(location, properties)
        return scheme, netloc, path.replace(netloc, netloc.partition("@")[0], 1)


def point_to(
    server: ObjectServer | CloudServer, directory: Path, monkeypatch: pytest.MonkeyPatch, url: str | None = None
) -> None:
    """Make the environment that finds a server, or what listens at ``url`` before it, and a catalog ``lake``."""
    at = server if url is None else server.at(url)
    for name, value in at.environment.items():
        monkeypatch.setenv(name, value)
    if isinstance(server, CloudServer):
        monkeypatch.setitem(READERS, server.scheme, server.readers)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{directory}/catalog.db")
    # pyiceberg has read the environment when it was imported
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())


def read_parquet(table: str) -> polars.DataFrame:
    try:
        return polars.read_parquet(f"{table}/*.parquet", storage_options=PLAIN)
    except polars.exceptions.ComputeError:
        # no such files: it is partitioned
        return polars.read_parquet(f"{table}/*=*/**/*.parquet", storage_options=PLAIN)


def read_delta(table: str) -> polars.DataFrame:
    by_deltalake: Any = polars.from_arrow(DeltaTable(table, storage_options=PLAIN).to_pyarrow_table())
    by_polars = polars.read_delta(table, storage_options=PLAIN)
    assert by_deltalake["delay"].sort().equals(by_polars["delay"].sort())
    return by_polars


def read_iceberg(table: str) -> polars.DataFrame:
    scheme = table.partition(":")[0]
    reached = READERS.get(scheme) or {
        "s3.region": REGION,
        "s3.endpoint": os.environ["AWS_ENDPOINT_URL"],
        "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
    }
    if scheme == "abfss":
        reached = {**reached, "py-io-impl": f"{ArrowFiles.__module__}.{ArrowFiles.__name__}"}
    catalog = load_catalog("lake", **reached)
    held: Any = catalog.load_table(("lading", table.rpartition("/")[2])).scan().to_arrow()
    return polars.DataFrame(held)


FORMS: dict[str, tuple[str, Callable[[str], polars.DataFrame]]] = {
    "parquet": ("parquet:", read_parquet),
    "delta": ("delta:", read_delta),
    "iceberg": ("iceberg:lake:", read_iceberg),
}
"""What a target begins with, and what reads the table."""
