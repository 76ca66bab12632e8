"""DeleteAcls while rules change: what others have deleted meanwhile does not come back, and others have their turn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lading.broker.broker import Broker
from lading.broker.core.access.rights import AccessRule, PatternKind, ResourceKind, Right
from lading.broker.core.change import Change, complete
from lading.broker.core.settings import BrokerSettings
from lading.endpoints.kafka import acls
from lading.log.group_commit import WriteOnly
from tests.endpoints.identity import rule

ANY_RESOURCE, TOPIC, MATCH, ALTER, ALLOW = 1, 2, 2, 7, 3


def ask(operation: int, name: str = "flights") -> Any:
    return SimpleNamespace(
        resource_type_filter=TOPIC, resource_name_filter=name, pattern_type_filter=3, principal_filter="User:ann",
        host_filter=None, operation=operation, permission_type=ALLOW,
    )  # fmt: skip


@pytest.fixture
def broker(tmp_path: Path) -> Any:
    opened = Broker.open(tmp_path, BrokerSettings(durability="os"), now_us=1, commit=WriteOnly())
    complete(opened.access.change_rules([rule("ann", Right.ADMINISTRATE, "flights")]))
    yield opened
    opened.stop()


def open_acls(broker: Broker, before_change: Any = lambda: None) -> acls.Acls:
    async def change(steps: Change[None]) -> None:
        before_change()
        complete(steps)

    services = SimpleNamespace(authenticator=SimpleNamespace(change=change))
    context: Any = SimpleNamespace(broker=broker, services=services)
    return acls.Acls(context)


def operations(broker: Broker) -> set[Right]:
    return {one.operation for one in broker.access.table.rules.get("ann", ()) if one.name == "flights"}


def test_a_rule_that_is_deleted_meanwhile_stays_deleted(broker: Broker) -> None:
    """DeleteAcls of ALTER gave back the rest of a rule on ``administrate`` that another change had deleted."""
    whole = AccessRule("ann", ResourceKind.TOPIC, PatternKind.LITERAL, "flights", Right.ADMINISTRATE)
    opened = open_acls(broker, lambda: complete(broker.access.change_rules((), [whole])))
    asyncio.run(opened._delete([ask(ALTER)]))
    assert operations(broker) == set()


def test_the_rest_of_a_rule_stays(broker: Broker) -> None:
    asyncio.run(open_acls(broker)._delete([ask(ALTER)]))
    assert Right.ALTER not in operations(broker) and Right.DELETE in operations(broker)


def test_many_filters_leave_others_their_turn(broker: Broker) -> None:
    """Each filter began a turn of its own, so that 500 short ones ran in one pass."""
    turns = 0

    async def count_turns(work: asyncio.Task[Any]) -> None:
        nonlocal turns
        while not work.done():
            turns += 1
            await asyncio.sleep(0)

    async def run() -> None:
        work = asyncio.ensure_future(open_acls(broker)._delete([ask(ALTER, "other")] * 20_000))
        await count_turns(work)

    asyncio.run(run())
    assert turns > 5
