"""Quotas: there are none, and requests are answered as by a Kafka without them."""

from __future__ import annotations

from collections.abc import Mapping

from ...dialects.kafka.versions import DESCRIBE_CLIENT_QUOTAS
from .handling import Context, Fields, Handler, Request, Session


def handlers(context: Context) -> Mapping[int, Handler]:
    """DescribeClientQuotas."""
    return {DESCRIBE_CLIENT_QUOTAS: _quotas}


def _quotas(session: Session, request: Request) -> Fields:
    return {"error_code": 0, "error_message": None, "entries": []}
