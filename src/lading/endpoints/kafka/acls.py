"""DescribeAcls, CreateAcls and DeleteAcls: Kafka's view of the one table of rules.

A request without an exact counterpart is refused with INVALID_REQUEST and a sentence, so that a rule never allows more
than its tool asked for. ``administrate`` is several operations in Kafka, with a row each; deleting one of them keeps
the others. Rules on users and streams cannot be expressed in Kafka and are not shown; one on the topics of a stream is
shown as a prefix.

* DescribeAcls, CreateAcls and DeleteAcls 1-3. 1 prefixes (KIP-290); 2 tagged fields; 3 the resource USER (KIP-373).
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from ...broker.core.access.rights import PARTS, AccessRule, PatternKind, Resource, ResourceKind, Right
from ...broker.core.change import Change
from ...dialects.kafka.errors import CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST, SECURITY_DISABLED
from ...dialects.kafka.versions import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from ...model.errors import LadingError, Reason, Refusal
from ...runtime.turns import Turn, finish_in_turns
from .handling import Context, Fields, Handler, Request, Session

UNKNOWN, ANY = 0, 1
DENY, ALLOW = 2, 3
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS = range(2, 12)
IDEMPOTENT_WRITE = 12
MATCH, LITERAL, PREFIXED = 2, 3, 4
KINDS: Final = {2: ResourceKind.TOPIC, 3: ResourceKind.GROUP, 4: ResourceKind.CLUSTER, 5: ResourceKind.TRANSACTION}
OPERATIONS: Final = {
    ALL: Right.ALL, READ: Right.READ, WRITE: Right.WRITE, CREATE: Right.CREATE, DELETE: Right.DELETE,
    ALTER: Right.ALTER, DESCRIBE: Right.DESCRIBE, DESCRIBE_CONFIGS: Right.DESCRIBE_CONFIGS,
    ALTER_CONFIGS: Right.ALTER_CONFIGS,
}  # fmt: skip
CLUSTER_NAME: Final = "kafka-cluster"
PRINCIPAL: Final = "User:"
HOST: Final = "*"
WILDCARD: Final = "*"
_ANY_USER: Final = Resource(ResourceKind.USER, "*")
_TYPES: Final = {kind: number for number, kind in KINDS.items()}
_NUMBERS: Final = {right: number for number, right in OPERATIONS.items()}
_OFF: Final[dict[str, Any]] = {
    "error_code": SECURITY_DISABLED,
    "error_message": "no users are set up, so rules have no effect: any client that reaches the port may do all; "
    "add a user first: lading user add",
}
_FORBIDDEN: Final[dict[str, Any]] = {"error_code": CLUSTER_AUTHORIZATION_FAILED, "error_message": None}
_DONE: Final[dict[str, Any]] = {"error_code": 0, "error_message": None}


def handlers(context: Context) -> Mapping[int, Handler]:
    """DescribeAcls, CreateAcls and DeleteAcls."""
    acls = Acls(context)
    return {DESCRIBE_ACLS: acls.describe, CREATE_ACLS: acls.create, DELETE_ACLS: acls.delete}


class Acls:
    """Handlers of one endpoint."""

    def __init__(self, context: Context) -> None:
        self._access = context.broker.access
        self._change = context.services.authenticator.change

    def describe(self, session: Session, request: Request) -> Fields | Awaitable[Fields]:
        if (refused := self._find_refusal(session, Right.DESCRIBE)) is not None:
            return {**refused, "resources": []}
        return self._describe(request.body)

    async def _describe(self, wanted: Any) -> Fields:
        found: dict[tuple[int, str, int], list[Fields]] = {}
        rules, turn = await finish_in_turns(self._access.table.sort_rules()), Turn()
        for rule in await _find_matching(rules, wanted, turn):
            kind, name, pattern, acl = _describe_rule(rule)
            found.setdefault((kind, name, pattern), []).append(acl)
            await turn.give_way()
        return {**_DONE, "resources": _describe_resources(found)}

    def create(self, session: Session, request: Request) -> Fields | Awaitable[Fields]:
        if (refused := self._find_refusal(session, Right.ADMINISTRATE)) is not None:
            return {"results": [refused] * len(request.body.creations)}
        return self._create(request.body.creations)

    async def _create(self, creations: Iterable[Any]) -> Fields:
        rules: list[AccessRule] = []
        results: list[dict[str, Any]] = []
        turn = Turn()
        for one in creations:
            try:
                rules.append(_parse_rule(one))
                results.append(_DONE)
            except Refusal as refusal:
                results.append({"error_code": INVALID_REQUEST, "error_message": str(refusal)})
            await turn.give_way()
        try:
            await self._change(self._access.change_rules(rules))
        except LadingError as error:
            failed = {"error_code": INVALID_REQUEST, "error_message": str(error)}
            results = [failed if one is _DONE else one for one in results]
        return {"results": results}

    def delete(self, session: Session, request: Request) -> Fields | Awaitable[Fields]:
        if (refused := self._find_refusal(session, Right.ADMINISTRATE)) is not None:
            return {"filter_results": [{**refused, "matching_acls": []}] * len(request.body.filters)}
        return self._delete(request.body.filters)

    async def _delete(self, filters: Iterable[Any]) -> Fields:
        rules = await finish_in_turns(self._access.table.sort_rules())
        turn = Turn()
        found: list[list[AccessRule]] = []
        for one in filters:
            found.append(await _find_matching(rules, one, turn))
            # in turns even without rules: reading a long filter alone takes time
            await turn.give_way()
        await self._change(self._remove_parts(found))
        # generators, which the worker that encodes the response reads
        rows = ({**_DONE, "matching_acls": map(_describe_deleted, parts)} for parts in found)
        return {"filter_results": rows}

    def _remove_parts(self, found: Iterable[Iterable[AccessRule]]) -> Change[None]:
        """Delete parts of rules, and keep the rest of each rule.

        The rules are read again: others may have deleted some while the filters were evaluated in turns.
        """
        kept, whole = list[AccessRule](), list[AccessRule]()

        def find_whole() -> None:
            gone = {part for parts in found for part in parts}
            held = self._access.table.rules
            for user in {part.user for part in gone}:
                for rule in held.get(user, ()):
                    parts = _split_rule(rule)
                    if not gone.isdisjoint(parts):
                        whole.append(rule)
                        kept.extend(part for part in parts if part not in gone)

        # in a worker: a user may have many rules
        yield find_whole
        yield from self._access.change_rules(kept, whole)

    def _find_refusal(self, session: Session, right: Right) -> dict[str, Any] | None:
        if not self._access.is_enabled:
            return _OFF
        return None if self._access.allows(session.principal, right, _ANY_USER) else _FORBIDDEN


async def _find_matching(rules: Iterable[AccessRule], wanted: Any, turn: Turn) -> list[AccessRule]:
    """Return the rules that a filter selects, in turns."""
    found: list[AccessRule] = []
    for rule in rules:
        if rule.kind in _TYPES:
            found += [part for part in _split_rule(rule) if _matches(wanted, part)]
        await turn.give_way()
    return found


def _describe_resources(found: dict[tuple[int, str, int], list[Fields]]) -> Iterator[Fields]:
    """Return the rows of a response for the worker that encodes it; each rule is freed there once its row is made."""
    for kind, name, pattern in list(found):
        acls = found.pop((kind, name, pattern))
        yield {"resource_type": kind, "resource_name": name, "pattern_type": pattern, "acls": acls}


def _split_rule(rule: AccessRule) -> list[AccessRule]:
    """Return the rules with the Kafka operations that a rule is made of; most rules are one operation."""
    if rule.operation is not Right.ADMINISTRATE:
        return [rule]
    parts = PARTS if rule.denies else {Right.CREATE, *PARTS}
    return [replace(rule, operation=right) for right in Right if right in parts]


def _matches(wanted: Any, rule: AccessRule) -> bool:
    """Return whether a filter selects a rule, in the form Kafka has for it (KIP-290 for patterns)."""
    kind, name, pattern, acl = _describe_rule(rule)
    asked_name, asked_pattern = wanted.resource_name_filter, wanted.pattern_type_filter
    if asked_name is not None and asked_pattern == MATCH:
        is_named = name in (asked_name, WILDCARD) or (pattern == PREFIXED and asked_name.startswith(name))
    else:
        is_named = asked_name in (None, name) and asked_pattern in (ANY, MATCH, pattern)
    return (
        is_named
        and wanted.resource_type_filter in (ANY, kind)
        and wanted.principal_filter in (None, acl["principal"])
        and wanted.host_filter in (None, HOST)
        and wanted.operation in (ANY, acl["operation"])
        and wanted.permission_type in (ANY, acl["permission_type"])
    )


def _describe_rule(rule: AccessRule) -> tuple[int, str, int, dict[str, Any]]:
    """Return a rule as Kafka describes it: resource type, name, pattern, and the remaining fields."""
    name, pattern = rule.name, LITERAL
    if rule.kind is ResourceKind.CLUSTER:
        name = CLUSTER_NAME
    elif rule.pattern is PatternKind.PREFIX:
        pattern = PREFIXED
    elif rule.pattern is PatternKind.IN_STREAM:
        name, pattern = f"{rule.name}.", PREFIXED
    operation = _NUMBERS[rule.operation]
    if rule.kind is ResourceKind.CLUSTER and rule.operation is Right.WRITE:
        operation = IDEMPOTENT_WRITE
    permission = DENY if rule.denies else ALLOW
    acl = {"principal": PRINCIPAL + rule.user, "host": HOST, "operation": operation, "permission_type": permission}
    return _TYPES[rule.kind], name, pattern, acl


def _describe_deleted(rule: AccessRule) -> dict[str, Any]:
    kind, name, pattern, acl = _describe_rule(rule)
    return {**_DONE, "resource_type": kind, "resource_name": name, "pattern_type": pattern, **acl}


def _parse_rule(one: Any) -> AccessRule:
    """Return the table's row for a new ACL. Raises Refusal if no row means exactly the same."""
    kind = KINDS.get(one.resource_type)
    right = OPERATIONS.get(one.operation)
    if kind is ResourceKind.CLUSTER and one.operation == IDEMPOTENT_WRITE:
        right = Right.WRITE
    if kind is None or one.permission_type not in (ALLOW, DENY):
        raise Refusal(Reason.INVALID_RULE, "rules are on topics, groups, transactional ids and the cluster")
    if one.operation == CLUSTER_ACTION:
        raise Refusal(
            Reason.INVALID_RULE, "ClusterAction is what brokers of a cluster do with each other; there is one broker"
        )
    if right is None:
        raise Refusal(
            Reason.INVALID_RULE,
            "this operation has no right of its own; use Read, Write, Create, Delete, Alter, Describe, "
            "DescribeConfigs, AlterConfigs, All, or IdempotentWrite on the cluster",
        )
    if not one.principal.startswith(PRINCIPAL):
        raise Refusal(Reason.INVALID_RULE, f"principal {one.principal!r}: only users have rights; write User:NAME")
    if one.host != HOST:
        raise Refusal(Reason.INVALID_RULE, "rules are for all hosts; use host *")
    user, name = one.principal.removeprefix(PRINCIPAL), one.resource_name
    if kind is ResourceKind.CLUSTER:
        return AccessRule(user, kind, PatternKind.LITERAL, "cluster", right, one.permission_type == DENY)
    pattern = {LITERAL: PatternKind.LITERAL, PREFIXED: PatternKind.PREFIX}.get(one.resource_pattern_type)
    if pattern is None:
        raise Refusal(Reason.INVALID_RULE, "a new rule is literal or prefixed")
    if name == WILDCARD and pattern is PatternKind.LITERAL:
        pattern = PatternKind.ANY
    return AccessRule(user, kind, pattern, name, right, one.permission_type == DENY)
