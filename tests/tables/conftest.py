"""The broker of the Spark tests, without Spark."""

from __future__ import annotations

from tests.spark.conftest import broker

__all__ = ["broker"]
