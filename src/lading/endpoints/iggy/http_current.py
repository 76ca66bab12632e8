"""Changes by HTTP clients of the current generation: its operations, with their responses over HTTP.

Reading is the same for all releases, see ``http.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request

from ...dialects.iggy_classic import commands as c
from ...dialects.iggy_current.options import DESCRIBED_OPTIONS
from ...dialects.json.commands import identifier
from ...dialects.json.current_operations import parse_operation
from ...dialects.json.documents import IDENTIFIER, U32
from ...model.errors import Reason, Refusal
from ..base.services import Services
from .clients import Client
from .current.caller import CurrentCaller, from_wire
from .current.service import CurrentService

if TYPE_CHECKING:
    from ..http_shared.routing import Parameters

_FORMS: Final[dict[str, Callable[[str], Any]]] = {
    "stream": identifier,
    "topic": identifier,
    "group_id": identifier,
    "consumer": IDENTIFIER.from_text,
    "partition_id": U32.from_text,
}
_FIELD_NAMES: Final = {"group_id": "group", "partition_id": "partition"}
_SCOPES: Final = ("topic", "stream", "user")


def _find_stream(values: Mapping[str, Any]) -> c.GetStream:
    return c.GetStream(values["name"])


def _find_topic(values: Mapping[str, Any]) -> c.GetTopic:
    return c.GetTopic(from_wire(values["stream"]), values["name"])


def _find_group(values: Mapping[str, Any]) -> c.GetGroup:
    return c.GetGroup(from_wire(values["stream"]), from_wire(values["topic"]), values["name"])


_CREATED: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "create_stream": _find_stream,
    "create_topic": _find_topic,
    "create_consumer_group": _find_group,
}
"""The request that reads back what an operation has created, for its response."""


class HttpOperations:
    """Carries out operations; one for all listeners."""

    def __init__(self, services: Services) -> None:
        self._service = CurrentService(services)

    async def change(self, name: str, client: Client, request: Request, body: bytes, path: Parameters) -> Any:
        """Carry out an operation; returns the command that gets what it has created, or None."""
        try:
            fields = {_FIELD_NAMES.get(key, key): _FORMS[key](text) for key, text in path.items()}
        except ValueError as error:
            raise Refusal(Reason.MALFORMED, f"the path has {error}") from None
        values = parse_operation(name, body, dict(request.query_params), **fields)
        outcome = self._service.begin(name, CurrentCaller(client), values)
        if not isinstance(outcome, bytes):
            await outcome
        return _CREATED[name](values) if name in _CREATED else None


def describe_options(scope: str) -> list[dict[str, Any]]:
    """Return the options of topics, streams or users; Refusal for another scope."""
    if scope not in _SCOPES:
        raise Refusal(Reason.MALFORMED, f"options have no scope {scope[:40]!r}; there are {', '.join(_SCOPES)}")
    return [
        {
            "key": key,
            "kind": spec.kind.word,
            "default_value": list(spec.default),
            "description": spec.description,
        }
        for key, spec in (DESCRIBED_OPTIONS.items() if scope == _SCOPES[0] else ())
    ]


def describe_cluster(client: Client) -> dict[str, Any]:
    """Return a cluster of one healthy leader, without the ports of its other endpoints."""
    here = client.here
    endpoints = {"tcp": 0, "quic": 0, "http": here.port, "websocket": 0}
    node = {"name": "lading", "ip": here.host, "endpoints": endpoints, "role": "leader", "status": "healthy"}
    return {"name": "single-node", "nodes": [node]}
