"""DescribeClientQuotas and AlterClientQuotas: Kafka's view of the quotas of users.

Quotas here belong to one user, or to all users without a quota of their own (``--entity-default``). Quotas of client
ids and addresses are refused by name: a client chooses its own id, and addresses have ``connections.peer_share``.

* DescribeClientQuotas and AlterClientQuotas 0-1. 1 tagged fields (KIP-546).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final

from ...broker.core.access.quotas import QUOTA_NAMES, Quota
from ...broker.core.access.rights import EVERYBODY
from ...broker.core.access.users import require_quota_name
from ...dialects.kafka.errors import INVALID_REQUEST, UNKNOWN_SERVER_ERROR
from ...dialects.kafka.versions import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from ...model.errors import LadingError, Reason, Refusal
from ...runtime.turns import Turn, TurnCounter, Turns, take_turns
from .handling import Answer, Context, Fields, Handler, Request, Session

USER: Final = "user"
EXACT, DEFAULT, ANY = range(3)
KINDS_NAMED: Final = 4
"""An error names at most this many kinds of entities; a request may have a hundred thousand."""


def handlers(context: Context) -> Mapping[int, Handler]:
    """DescribeClientQuotas and AlterClientQuotas."""
    quotas = ClientQuotas(context)
    return {DESCRIBE_CLIENT_QUOTAS: quotas.describe, ALTER_CLIENT_QUOTAS: quotas.alter}


class ClientQuotas:
    """Handlers of one endpoint."""

    def __init__(self, context: Context) -> None:
        self._access = context.broker.access
        self._change = context.services.authenticator.change

    def describe(self, session: Session, request: Request) -> Answer:
        """Return the quotas that match all components; a component for anything but users matches none."""
        return take_turns(self._describe(request.body))

    def _describe(self, body: Any) -> Turns[Fields]:
        rows, turn = [], TurnCounter()
        # safe without a copy: a table is replaced, never changed
        for name, quota in self._access.table.quotas.items():
            is_wanted = bool(body.components) or not body.strict
            for component in body.components:
                is_wanted = is_wanted and _matches_component(component, name)
                if turn.is_over():
                    yield
            if is_wanted:
                rows.append({"entity": [_entity_of(name)], "values": _values_of(quota)})
            if turn.is_over():
                yield
        return {"error_code": 0, "error_message": None, "entries": rows}

    def alter(self, session: Session, request: Request) -> Awaitable[Fields]:
        return self._alter(request.body)

    async def _alter(self, body: Any) -> Fields:
        changed: dict[str, Quota] = {}
        names: list[str | None] = []
        rows: list[dict[str, Any]] = []
        turn = Turn()
        for entry in body.entries:
            name, code, message = None, 0, None
            try:
                name = _name_of(entry.entity)
                quota = changed.get(name) or self._access.table.quotas.get(name, Quota())
                quota = _change_quota(quota, entry.ops)
                require_quota_name(name)
                changed[name] = quota
            except Refusal as refusal:
                name, code, message = None, INVALID_REQUEST, str(refusal)
            names.append(name)
            entity = [{"entity_type": one.entity_type, "entity_name": one.entity_name} for one in entry.entity]
            rows.append({"error_code": code, "error_message": message, "entity": entity})
            await turn.give_way()
        if changed and not body.validate_only:
            try:
                # in one change, as each change writes the file of all users
                await self._change(self._access.set_quotas(changed))
            except LadingError as error:
                failed = {"error_code": UNKNOWN_SERVER_ERROR, "error_message": str(error)}
                rows = [row if name is None else row | failed for name, row in zip(names, rows, strict=True)]
        return {"entries": rows}


def _matches_component(component: Any, name: str) -> bool:
    if component.entity_type != USER:
        return False
    if component.match_type == EXACT:
        return name != EVERYBODY and name == component.match
    return component.match_type == ANY or (component.match_type == DEFAULT and name == EVERYBODY)


def _entity_of(name: str) -> Fields:
    return {"entity_type": USER, "entity_name": None if name == EVERYBODY else name}


def _values_of(quota: Quota) -> list[Fields]:
    return [{"key": key, "value": value} for key, value in quota.document().items()]


def _name_of(entity: Sequence[Any]) -> str:
    """Return the user that an entry is about. Raises Refusal if it is about anything else."""
    if len(entity) != 1 or entity[0].entity_type != USER:
        kinds = " and ".join(str(one.entity_type) for one in entity[:KINDS_NAMED]) or "nothing"
        raise Refusal(Reason.INVALID_QUOTA, f"quotas are of users here, not of {kinds}; use --entity-type users")
    (user,) = entity
    if user.entity_name == EVERYBODY:
        raise Refusal(Reason.INVALID_QUOTA, "user '*' does not exist; use --entity-default for all others")
    return EVERYBODY if user.entity_name is None else str(user.entity_name)


def _change_quota(quota: Quota, changes: Sequence[Any]) -> Quota:
    document = quota.document()
    for one in changes:
        if one.key not in QUOTA_NAMES:
            raise Refusal(
                Reason.INVALID_QUOTA, f"there is no quota {one.key!r} here; there are {', '.join(QUOTA_NAMES)}"
            )
        if one.remove:
            document.pop(one.key, None)
        else:
            document[one.key] = one.value
    return Quota.parse(document)
