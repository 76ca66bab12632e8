"""Groups for the page: all kinds with their lag, one by partition; positions moved and groups deleted."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..client.group_reset import plan_group_reset
from ..client.read_bounds import parse_place
from ..model.errors import LocalError
from ..transports.group_administration import GroupAdministration
from ..transports.interface import Transport
from .changes import changing, field_of
from .history import History
from .responses import Document, json_answer, text_of
from .settings import ConsoleSettings
from .source import ConsoleSource
from .topics import is_decision

ROWS_MAX: Final = 500
"""How many groups one list has, those with the highest lag: a cluster can have 100,000."""
FRESH_S: Final = 2.0
"""The shortest time between two lists of all groups, however many pages are open."""
PARTITIONS_MAX: Final = 2_000
"""How many partitions of a group one page shows."""


class GroupPages:
    """Handlers."""

    def __init__(self, source: ConsoleSource, settings: ConsoleSettings) -> None:
        self._source = source
        self._is_read_only = settings.is_read_only
        self._sampled_max = settings.sampled_groups_max
        self._rows: list[Document] = []
        self._rows_at_s = float("-inf")
        self._lags: History[tuple[str, str]] = History(self._sampled_max)
        self._lock = threading.Lock()

    def routes(self) -> list[Route]:
        """Return the table for the router."""
        return [
            Route("/api/groups", self._list),
            Route("/api/group", self._describe),
            Route(
                "/api/group/reset",
                changing(self._reset, is_read_only=self._is_read_only, is_dry_by_default=True),
                methods=["POST"],
            ),
            Route("/api/group/delete", changing(self._delete, is_read_only=self._is_read_only), methods=["POST"]),
        ]

    def _list(self, request: Request) -> Response:
        wanted = request.query_params.get("q", "").lower()
        with self._source.lend() as transport:
            rows = self._rows_of(_require_administration(transport))
        found = [row for row in rows if wanted in row["group"].lower()]
        found.sort(key=lambda row: (-(row["lag"] or 0), row["group"], row["protocol"]))
        return json_answer({"groups": found[:ROWS_MAX], "found": len(found), "total": len(rows)})

    def _rows_of(self, transport: GroupAdministration) -> list[Document]:
        with self._lock:
            if time.monotonic() - self._rows_at_s > FRESH_S:
                # the positions of those are a decision about transactions, and no lag
                self._rows = [row | {"lag": None} if is_decision(row) else row for row in transport.groups()]
                self._rows_at_s = time.monotonic()
                for row in self._rows[: self._sampled_max]:
                    self._lags.note((row["protocol"], row["group"]), row["lag"] or 0)
            return self._rows

    def _describe(self, request: Request) -> Response:
        protocol, name = text_of(request, "protocol"), text_of(request, "group")
        with self._source.lend() as transport:
            group = _require_administration(transport).group(protocol, name)
        partitions = group["partitions"]
        with self._lock:
            self._lags.note((protocol, name), group["lag"] or 0)
            samples = self._lags.of((protocol, name))
        return json_answer(
            group
            | {
                "partitions": partitions[:PARTITIONS_MAX],
                "partitions_count": len(partitions),
                "topics": sorted({part["topic"] for part in partitions}),
                "samples": samples,
            }
        )

    def _reset(self, document: Document) -> Document:
        """Move the positions of a group, in all its partitions or those of one topic; a dry run unless asked not to."""
        protocol, name = field_of(document, "protocol", str), field_of(document, "group", str)
        to, shift = field_of(document, "to", str, ""), field_of(document, "shift", int, 0)
        if bool(to) == bool(shift):
            raise LocalError(
                "say where the group goes on: earliest, latest, an offset, a time, or by how many messages"
            )
        bound = parse_place("the new position", to) if to else None
        topics = field_of(document, "topics", list, [])
        is_dry_run = field_of(document, "dry_run", bool, True)
        with self._source.lend() as transport:
            groups = _require_administration(transport)
            group = groups.group(protocol, name)
            planned = plan_group_reset(transport, group, bound, shift=shift, topics=_names_of(topics))
            if not is_dry_run:
                groups.reset_group(protocol, name, [(one.topic, one.partition, one.new_position) for one in planned])
        rows = [one._asdict() for one in planned[:PARTITIONS_MAX]]
        return {
            "dry_run": is_dry_run,
            "partitions": rows,
            "partitions_count": len(planned),
            "members": len(group["members"]),
            "moved": sum(one.new_position != one.position for one in planned),
        }

    def _delete(self, document: Document) -> Document:
        protocol, name = field_of(document, "protocol", str), field_of(document, "group", str)
        with self._source.lend() as transport:
            _require_administration(transport).delete_group(protocol, name)
        with self._lock:
            # the list that follows at once no longer has it
            self._rows_at_s = float("-inf")
        return {"deleted": name}


def _require_administration(transport: Transport) -> GroupAdministration:
    if not isinstance(transport, GroupAdministration):
        raise LocalError(
            "groups are shown for a broker of Lading and for a Kafka cluster; start the console with --from lading:// "
            "or kafka://"
        )
    return transport


def _names_of(topics: Sequence[Any]) -> list[str]:
    names = [one for one in topics if isinstance(one, str)]
    if len(names) != len(topics):
        raise LocalError("field 'topics' of the request: a topic is not a text; send names")
    return names
