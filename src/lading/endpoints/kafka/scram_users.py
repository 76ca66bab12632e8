"""DescribeUserScramCredentials and AlterUserScramCredentials: the passwords of users, as Kafka's tools change them.

The tools send a salted password for one mechanism. A user has one password here: the verifiers in a request replace all
verifiers of the user's old password, so that it is accepted nowhere. PLAIN and other protocols check the new one by the
same verifier. A user that does not exist is added, without rights.

* DescribeUserScramCredentials 0 and AlterUserScramCredentials 0 (KIP-554).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...broker.core.access.credentials import SCRAM_ITERATIONS_MIN, ScramVerifier, make_verifier
from ...broker.core.access.rights import Resource, ResourceKind, Right
from ...dialects.kafka.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    DUPLICATE_RESOURCE,
    RESOURCE_NOT_FOUND,
    UNACCEPTABLE_CREDENTIAL,
)
from ...dialects.kafka.versions import ALTER_SCRAM_CREDENTIALS, DESCRIBE_SCRAM_CREDENTIALS
from ...model.errors import LadingError, Reason, Refusal
from ...runtime.turns import Turn, TurnCounter, Turns, take_turns
from ..base.services import now_us
from .handling import Answer, Context, Fields, Handler, Request, Session

MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
ITERATIONS_MAX: Final = 1 << 20
"""Clients compute the hash this many times at each login; without a bound a mistake could lock a user out."""
_NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}


def handlers(context: Context) -> Mapping[int, Handler]:
    """DescribeUserScramCredentials and AlterUserScramCredentials."""
    users = ScramUsers(context)
    return {DESCRIBE_SCRAM_CREDENTIALS: users.describe, ALTER_SCRAM_CREDENTIALS: users.alter}


class _UserChange(NamedTuple):
    """The changes of one user in one request."""

    deletions: list[Any]
    upsertions: list[Any]

    def names_a_mechanism_twice(self) -> bool:
        """Return whether two of the rows are for the same mechanism."""
        counts = Counter(row.mechanism for row in (*self.deletions, *self.upsertions))
        return max(counts.values()) > 1


class ScramUsers:
    """Handlers of one endpoint."""

    def __init__(self, context: Context) -> None:
        self._access = context.broker.access
        self._change = context.services.authenticator.change

    def describe(self, session: Session, request: Request) -> Answer:
        """Return the named users, or all users who have verifiers.

        Users that the client may not see are reported as missing.
        """
        return take_turns(self._describe(session, request.body.users))

    def _describe(self, session: Session, named: Sequence[Any] | None) -> Turns[Fields]:
        rows, turn = list[Fields](), TurnCounter()
        names: Iterable[str] = (user.name for user in named) if named else list(self._access.table.users)
        for name in names:
            infos = self._list_credentials(name) if self._may_change(session, Right.DESCRIBE, name) else []
            if infos:
                rows.append({"user": name, "error_code": 0, "error_message": None, "credential_infos": infos})
            elif named:
                message = f"user {name!r} does not exist, or has no SCRAM credentials"
                rows.append(
                    {"user": name, "error_code": RESOURCE_NOT_FOUND, "error_message": message, "credential_infos": []}
                )
            if turn.is_over():
                yield
        return {"error_code": 0, "error_message": None, "results": rows}

    def _list_credentials(self, name: str) -> list[Fields]:
        user = self._access.table.users.get(name)
        verifiers = {} if user is None else user.credentials.scram
        return [
            {"mechanism": _NUMBERS[mechanism], "iterations": verifier.iterations}
            for mechanism, verifier in verifiers.items()
        ]

    def alter(self, session: Session, request: Request) -> Awaitable[Fields]:
        return self._alter(session, request.body)

    async def _alter(self, session: Session, body: Any) -> Fields:
        turn = Turn()
        changes: dict[str, _UserChange] = {}
        for deletion in body.deletions:
            changes.setdefault(deletion.name, _UserChange([], [])).deletions.append(deletion)
            await turn.give_way()
        for upsertion in body.upsertions:
            changes.setdefault(upsertion.name, _UserChange([], [])).upsertions.append(upsertion)
            await turn.give_way()
        verifiers: dict[str, Mapping[str, ScramVerifier]] = {}
        results: dict[str, tuple[int, str | None]] = {}
        for name, change in changes.items():
            results[name] = 0, None
            try:
                if not self._may_change(session, Right.ADMINISTRATE, name):
                    results[name] = CLUSTER_AUTHORIZATION_FAILED, None
                elif change.names_a_mechanism_twice():
                    results[name] = DUPLICATE_RESOURCE, None
                else:
                    of_user = self._make_verifiers(name, change)
                    self._access.require_scram_user(name)
                    verifiers[name] = of_user
            except LadingError as error:
                results[name] = _describe_error(error)
            await turn.give_way()
        if verifiers:
            try:
                # in one change, as each change writes the file of all users
                await self._change(self._access.set_scram_verifiers(verifiers, now_us=now_us()))
            except LadingError as error:
                results |= dict.fromkeys(verifiers, _describe_error(error))
        # a generator, which the worker that encodes the response reads
        rows = ({"user": name, "error_code": code, "error_message": text} for name, (code, text) in results.items())
        return {"results": rows}

    def _make_verifiers(self, name: str, change: _UserChange) -> dict[str, ScramVerifier]:
        verifiers: dict[str, ScramVerifier] = {}
        if not change.upsertions:
            kept = self._access.table.user(name).credentials.scram
            deleted = {MECHANISMS.get(deletion.mechanism, "") for deletion in change.deletions}
            if not deleted <= kept.keys():
                raise Refusal(
                    Reason.USER_NOT_FOUND, f"user {name!r} has no such SCRAM credentials; list what the user has"
                )
            verifiers = {mechanism: verifier for mechanism, verifier in kept.items() if mechanism not in deleted}
        for upsertion in change.upsertions:
            mechanism = MECHANISMS.get(upsertion.mechanism)
            salt, salted = bytes(upsertion.salt), bytes(upsertion.salted_password)
            if mechanism is None or not SCRAM_ITERATIONS_MIN <= upsertion.iterations <= ITERATIONS_MAX:
                raise Refusal(
                    Reason.INVALID_PASSWORD, f"SCRAM takes {SCRAM_ITERATIONS_MIN} to {ITERATIONS_MAX} iterations"
                )
            # any salt is accepted, as in Apache Kafka: tools choose short ones, different for each user
            if not salted:
                raise Refusal(Reason.INVALID_PASSWORD, f"user {name!r}: the salted password is empty; send a password")
            verifiers[mechanism] = make_verifier(mechanism, salted, salt, upsertion.iterations)
        return verifiers

    def _may_change(self, session: Session, right: Right, name: str) -> bool:
        user = self._access.table.users.get(name)
        if right is Right.ADMINISTRATE and user is not None and user.is_administrator:
            # the right to manage users must not be enough to become an administrator
            return self._access.is_administrator(session.principal)
        return self._access.allows(session.principal, right, Resource(ResourceKind.USER, name))


def _describe_error(error: LadingError) -> tuple[int, str]:
    """Return the code and the text of a refused change."""
    not_found = isinstance(error, Refusal) and error.reason is Reason.USER_NOT_FOUND
    return RESOURCE_NOT_FOUND if not_found else UNACCEPTABLE_CREDENTIAL, str(error)
