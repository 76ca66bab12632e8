"""Rules about who may do what and how much: there are none, and tools that ask are told so as Kafka without them tells.

Names and passwords are not asked for here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...dialects.kafka.errors import RESOURCE_NOT_FOUND, SECURITY_DISABLED
from ...dialects.kafka.versions import (
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_SCRAM_CREDENTIALS,
)
from .handling import Context, Fields, Handler, Request, Session

_OFF: Final[dict[str, Any]] = {
    "error_code": SECURITY_DISABLED,
    "error_message": "access rules are not supported: any client that reaches the port may do everything",
}


def handlers(context: Context) -> Mapping[int, Handler]:
    """DescribeAcls, CreateAcls, DeleteAcls, DescribeClientQuotas and DescribeUserScramCredentials."""
    return {
        DESCRIBE_ACLS: _acls,
        CREATE_ACLS: _new_acls,
        DELETE_ACLS: _no_acls,
        DESCRIBE_CLIENT_QUOTAS: _quotas,
        DESCRIBE_SCRAM_CREDENTIALS: _credentials,
    }


def _acls(session: Session, request: Request) -> Fields:
    return {**_OFF, "resources": []}


def _new_acls(session: Session, request: Request) -> Fields:
    return {"results": [_OFF for _ in request.body.creations]}


def _no_acls(session: Session, request: Request) -> Fields:
    return {"filter_results": [{**_OFF, "matching_acls": []} for _ in request.body.filters]}


def _quotas(session: Session, request: Request) -> Fields:
    return {"error_code": 0, "error_message": None, "entries": []}


def _credentials(session: Session, request: Request) -> Fields:
    """Nobody has any: no rows for everybody, an error for each who is asked for by name."""
    rows = [
        {
            "user": one.name,
            "error_code": RESOURCE_NOT_FOUND,
            "error_message": f"users are not supported, so there is none called {one.name!r}",
            "credential_infos": [],
        }
        for one in request.body.users or ()
    ]
    return {"error_code": 0, "error_message": None, "results": rows}
