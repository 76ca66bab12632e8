"""DescribeUserScramCredentials and AlterUserScramCredentials: the passwords of users, as Kafka's tools change them.

The tools send a salted password for one mechanism. A user has one password here: what one request says of a user takes
the place of all that was kept of the old one, so that it is good nowhere any more. PLAIN and other protocols check it
by the same verifier. A user that does not exist is added, without rights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Mapping
from typing import Any, Final

from ...broker.core.credentials import SCRAM_ITERATIONS_MIN, ScramVerifier, make_verifier
from ...broker.core.rights import Resource, ResourceKind, Right
from ...dialects.kafka.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    DUPLICATE_RESOURCE,
    RESOURCE_NOT_FOUND,
    UNACCEPTABLE_CREDENTIAL,
)
from ...dialects.kafka.versions import ALTER_SCRAM_CREDENTIALS, DESCRIBE_SCRAM_CREDENTIALS
from ...model.errors import LadingError, Reason, Refusal
from ..base.services import now_us
from .handling import Context, Fields, Handler, Request, Session

MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
ITERATIONS_MAX: Final = 1 << 20
_NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}


def handlers(context: Context) -> Mapping[int, Handler]:
    """DescribeUserScramCredentials and AlterUserScramCredentials."""
    users = ScramUsers(context)
    return {DESCRIBE_SCRAM_CREDENTIALS: users.describe, ALTER_SCRAM_CREDENTIALS: users.alter}


class ScramUsers:
    """Handlers of one endpoint."""

    def __init__(self, context: Context) -> None:
        self._access = context.broker.access
        self._change = context.services.authenticator.change

    def describe(self, session: Session, request: Request) -> Fields:
        """Return all users who have verifiers, or those named.

        Whom the client may not see is as one who does not exist.
        """
        users = self._access.table.users
        names = [one.name for one in request.body.users] if request.body.users else list(users)
        rows: list[Fields] = []
        for name in names:
            known = users.get(name) if self._may(session, Right.DESCRIBE, name) else None
            infos = [] if known is None else [
                {"mechanism": _NUMBERS[mechanism], "iterations": one.iterations}
                for mechanism, one in known.credentials.scram.items()
            ]  # fmt: skip
            if infos:
                rows.append({"user": name, "error_code": 0, "error_message": None, "credential_infos": infos})
            elif request.body.users:
                message = f"user {name!r} does not exist, or has no SCRAM credentials"
                rows.append(
                    {"user": name, "error_code": RESOURCE_NOT_FOUND, "error_message": message, "credential_infos": []}
                )
        return {"error_code": 0, "error_message": None, "results": rows}

    def alter(self, session: Session, request: Request) -> Awaitable[Fields]:
        return self._alter(session, request.body)

    async def _alter(self, session: Session, body: Any) -> Fields:
        names = list(dict.fromkeys([one.name for one in (*body.deletions, *body.upsertions)]))
        named = Counter((one.name, one.mechanism) for one in (*body.deletions, *body.upsertions))
        twice = {name for (name, _), count in named.items() if count > 1}
        rows = []
        for name in names:
            code, message = 0, None
            try:
                if not self._may(session, Right.ADMINISTRATE, name):
                    code = CLUSTER_AUTHORIZATION_FAILED
                elif name in twice:
                    code = DUPLICATE_RESOURCE
                else:
                    await self._alter_user(name, body)
            except LadingError as error:
                not_found = isinstance(error, Refusal) and error.reason is Reason.USER_NOT_FOUND
                code, message = RESOURCE_NOT_FOUND if not_found else UNACCEPTABLE_CREDENTIAL, str(error)
            rows.append({"user": name, "error_code": code, "error_message": message})
        return {"results": rows}

    async def _alter_user(self, name: str, body: Any) -> None:
        deleted = [one.mechanism for one in body.deletions if one.name == name]
        added = [one for one in body.upsertions if one.name == name]
        verifiers: dict[str, ScramVerifier] = {}
        if not added:
            kept = self._access.table.user(name).credentials.scram
            gone = {MECHANISMS.get(number, "") for number in deleted}
            if not gone <= kept.keys():
                raise Refusal(Reason.USER_NOT_FOUND, f"user {name!r} has no such SCRAM credentials")
            verifiers = {mechanism: one for mechanism, one in kept.items() if mechanism not in gone}
        for one in added:
            mechanism = MECHANISMS.get(one.mechanism)
            salt, salted = bytes(one.salt), bytes(one.salted_password)
            if mechanism is None or not SCRAM_ITERATIONS_MIN <= one.iterations <= ITERATIONS_MAX:
                raise Refusal(
                    Reason.INVALID_PASSWORD, f"SCRAM takes {SCRAM_ITERATIONS_MIN} to {ITERATIONS_MAX} iterations"
                )
            # any salt is taken, as Apache Kafka does it: tools choose short ones, and each user has one of their own
            if not salted:
                raise Refusal(Reason.INVALID_PASSWORD, f"user {name!r}: the salted password is empty; send a password")
            verifiers[mechanism] = make_verifier(mechanism, salted, salt, one.iterations)
        await self._change(self._access.set_scram_verifiers(name, verifiers, now_us=now_us()))

    def _may(self, session: Session, right: Right, name: str) -> bool:
        user = self._access.table.users.get(name)
        if right is Right.ADMINISTRATE and user is not None and user.is_administrator:
            # whoever may manage users takes over no administrator
            return self._access.is_administrator(session.principal)
        return self._access.allows(session.principal, right, Resource(ResourceKind.USER, name))
