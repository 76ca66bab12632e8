"""Documents of the admin endpoint that are as long as they may be: read once, in one pass of the loop, and by rows."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from pydantic_core import from_json
from starlette.requests import Request

from lading.broker.core.access.rights import AccessRule
from lading.broker.core.access.users import AccessTable
from lading.broker.core.callbacks import ignore
from lading.endpoints.admin.access import RuleDocument, RulesChange
from lading.endpoints.base.receive_budget import ReceiveBudget
from lading.endpoints.base.request_budget import RequestBudget
from lading.endpoints.http_shared.documents import (
    ROWS_MAX,
    NewGroupPositions,
    RequestModel,
    answer_rows,
    parse_body,
    parse_rows,
)
from lading.model.errors import Refusal
from lading.runtime import turns
from lading.runtime.turns import ROWS_AT_ONCE
from tests.endpoints.http_parts import _position, _rule
from tests.house.scripted import ScriptedLoop

USERS = ("user-0", "user-1", "user-2")


def _request(body: bytes) -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"content-length", b"%d" % len(body))]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers, "client": ("::1", 1)}, receive)


def _parse(kind: type[RequestModel], body: bytes) -> Any:
    return _finish(parse_body(kind, _request(body), ReceiveBudget(1 << 30)))


def _finish(work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result: ``asyncio.run`` would write the task out at its end, with all rows of its document."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def _least_s(work: Callable[[], object]) -> float:
    taken_s = []
    for _ in range(7):
        began_s = time.thread_time()
        work()
        taken_s.append(time.thread_time() - began_s)
    return min(taken_s)


@pytest.mark.parametrize(
    ("kind", "name", "make_row"), [(RulesChange, "delete", _rule), (NewGroupPositions, "positions", _position)]
)
def test_a_long_document_is_read_once(
    kind: type[RequestModel], name: str, make_row: Callable[[int], dict[str, Any]]
) -> None:
    """It was parsed twice, and its rows were copied: 19 ms of a pass for 10,000 rules, three times as long as once."""
    rows = [make_row(number) for number in range(ROWS_MAX)]
    body = json.dumps({name: rows}).encode()
    assert getattr(_parse(kind, body), name) == rows
    gc.disable()
    try:
        assert _least_s(lambda: _parse(kind, body)) < 2 * _least_s(lambda: from_json(body))
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[]", "the body: input should be an object"),
        (b'{"add": {}}', "add: input should be a valid array"),
        (b'{"add": [', "the body: invalid JSON: EOF while parsing a list at line 1 column 9"),
        (b'{"more": []}', "more: extra inputs are not permitted; leave it out"),
        (b'{"add": %s}' % json.dumps([0] * (ROWS_MAX + 1)).encode(), "add: list should have at most 10000 items"),
    ],
)
def test_a_document_is_refused_in_the_words_of_json(body: bytes, message: str) -> None:
    with pytest.raises(Refusal) as refusal:
        _parse(RulesChange, body)
    assert str(refusal.value).startswith(message)


def test_a_row_that_is_none_is_refused_by_its_place() -> None:
    wanted = _parse(RulesChange, json.dumps({"add": [_rule(0), 7]}).encode())
    with pytest.raises(Refusal, match=r"^add\.1\.the row: input should be a valid dictionary"):
        _finish(parse_rows(RuleDocument, wanted.add, "add"))


def test_rows_that_are_left_out_have_turns_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without rights asked for a list of all topics: every one was looked at in one pass of the loop."""
    monkeypatch.setattr(turns, "TURN_S", 0)
    passes = 0
    work = answer_rows(range(1_000), lambda row: None, RequestBudget(ignore))
    with ScriptedLoop():
        try:
            while True:
                work.send(None)
                passes += 1
        except StopIteration as end:
            assert end.value.body == b"[]"
    assert passes >= 1_000


def test_rules_are_sorted_in_turns() -> None:
    rules = [AccessRule.parse(_rule(number) | {"user": f"user-{number % 3}"}) for number in range(5_000)]
    random.Random(7).shuffle(rules)
    table = AccessTable(rules={user: frozenset(rule for rule in rules if rule.user == user) for user in USERS})
    passes, work = 0, table.sort_rules()
    try:
        while True:
            next(work)
            passes += 1
    except StopIteration as end:
        assert end.value == sorted(rules) == table.all_rules()
    assert passes > 5_000 // ROWS_AT_ONCE
