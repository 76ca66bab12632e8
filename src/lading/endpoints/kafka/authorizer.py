"""Checks rights before the handlers of rare APIs, by the table in ``authorization.py``."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from ...broker.core.access.principal import Principal
from ...broker.core.access.rights import CLUSTER, Resource, ResourceKind, Right, flat_topic_resource
from ...runtime.turns import TurnCounter, Turns, finish_in_turns, take_turns
from .authorization import ASKED_ELSEWHERE, KINDS, NEEDS, NEEDS_BY_VERSION, ListNeed, Need, RequestNeed, Row, RowNeed
from .handling import Answer, Context, Fields, Framed, Handler, Request, Session

Change = Callable[[Fields], Turns[Fields]]
"""Changes a response, in turns."""


class _Body:
    """A request with fewer rows than the client sent."""

    def __init__(self, body: Any, attribute: str, rows: list[Any]) -> None:
        self._body = body
        setattr(self, attribute, rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)


class Authorizer:
    """Checks the rights that APIs need before their handlers are called."""

    def __init__(self, context: Context) -> None:
        self._access = context.broker.access
        self._topology = context.broker.topology

    def guard(self, key: int, handler: Handler) -> Handler:
        """Return a handler that checks rights first. Raises KeyError for an API without a row in the tables."""
        if key in ASKED_ELSEWHERE:
            return handler
        needs: Callable[[Request], Sequence[Need]] = NEEDS_BY_VERSION.get(key) or partial(_keep_needs, NEEDS[key])

        def guarded(session: Session, request: Request) -> Answer:
            if self._access.is_administrator(session.principal):
                return handler(session, request)
            return take_turns(self._ask(session, request, needs(request), handler))

        return guarded

    def allows(self, principal: Principal | None, right: Right, kind: ResourceKind, name: str) -> bool:
        """Return whether the principal may do this with a topic, group, transaction or the cluster."""
        if kind is ResourceKind.CLUSTER:
            resource = CLUSTER
        elif kind is ResourceKind.TOPIC:
            resource = flat_topic_resource(self._topology, name)
        else:
            resource = Resource(kind, name)
        return self._access.allows(principal, right, resource)

    def _ask(
        self, session: Session, request: Request, needs: Sequence[Need], handler: Handler
    ) -> Turns[Fields | Framed | Awaitable[Fields | Framed]]:
        principal, turn = session.principal, TurnCounter()
        changes: list[Change] = []
        for need in needs:
            if isinstance(need, RequestNeed):
                if (refused_whole := self._find_refusal(session, request, need)) is not None:
                    return refused_whole
            elif isinstance(need, RowNeed):
                allowed: list[Any] = []
                refused: list[Row] = []
                for row in getattr(request.body, need.asked) or ():
                    if self.allows(principal, need.right, need.kind(row), need.name(row)):
                        allowed.append(row)
                    else:
                        refused.append(need.refuse(row, need.code))
                    if turn.is_over():
                        yield
                if refused:
                    request = request._replace(body=_Body(request.body, need.asked, allowed))
                    changes.append(partial(_with_rows, need.answered, refused))
            else:
                changes.append(partial(self._remove_hidden, principal, need))
        answer = handler(session, request)
        for change in changes:
            if isinstance(answer, Framed):
                raise TypeError("an answer that is encoded by hand has no fields; its handler asks for rights")
            if isinstance(answer, Mapping):
                answer = yield from change(answer)
            else:
                answer = _change_later(answer, change)
        if isinstance(answer, Future):
            return self._ask_again(session, request, needs, answer)
        return answer

    def _find_refusal(self, session: Session, request: Request, need: RequestNeed) -> Fields | None:
        """Return the response of a refused request, or None if the user has the right."""
        kind = KINDS.get(need.code, ResourceKind.CLUSTER)
        name = "" if kind is ResourceKind.CLUSTER else need.name(request.body)
        if name is None or self.allows(session.principal, need.right, kind, name):
            return None
        return need.refuse(request.body, need.code)

    def _ask_again(
        self, session: Session, request: Request, needs: Sequence[Need], answer: Future[Fields | Framed]
    ) -> Future[Fields | Framed]:
        """Return a response that had to wait, such as for members of a group; refuse it if the right was revoked
        meanwhile.
        """
        asked: Future[Fields | Framed] = answer.get_loop().create_future()
        version = self._access.version

        def finish(done: Future[Fields | Framed]) -> None:
            if asked.done():
                return
            if done.cancelled():
                asked.cancel()
            elif (error := done.exception()) is not None:
                asked.set_exception(error)
            else:
                refused = (self._find_refusal(session, request, one) for one in needs if isinstance(one, RequestNeed))
                gone = None if self._access.version == version else next(filter(None, refused), None)
                asked.set_result(done.result() if gone is None else gone)

        answer.add_done_callback(finish)
        return asked

    def _remove_hidden(self, principal: Principal | None, need: ListNeed, fields: Fields) -> Turns[Fields]:
        turn, visible = TurnCounter(), []
        for row in fields.get(need.answered, ()):
            if self.allows(principal, need.right, need.kind, row[need.name]):
                visible.append(row)
            if turn.is_over():
                yield
        return {**fields, need.answered: visible}


def _with_rows(name: str, rows: Sequence[Row], fields: Fields) -> Turns[Fields]:
    yield
    return {**fields, name: [*fields.get(name, ()), *rows]}


async def _change_later(answer: Awaitable[Any], change: Change) -> Fields:
    found: Any = await answer
    while isinstance(found, Awaitable | Coroutine):
        found = await found
    return await finish_in_turns(change(found))


def _keep_needs(needs: Sequence[Need], request: Request) -> Sequence[Need]:
    return needs
