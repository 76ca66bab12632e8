"""The nsqd nodes to use: the one that a URL names, or those that an nsqlookupd knows (nsq.md 5.3)."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from ...model.errors import CorruptError, RemoteError, Unreachable
from ...runtime.read_deadline import DeadlineSocket, read_content
from ..client_tls import ClientTls, explain_failure, has_no_tls
from ..network import reading_response
from .connection import NAME_NSQD

V1: Final = {"Accept": "application/vnd.nsq; version=1.0"}
_OTHER_PAGES: Final = (404, 405, 426)
"""Statuses of ``/info`` that neither nsqd nor nsqlookupd returns."""
RESPONSE_BYTES_MAX: Final = 64 << 20
"""Size limit of a response: more than an nsqlookupd sends about half a million topics."""
NODES_MAX: Final = 1_000
"""Each node that a lookup names is connected to, one after the other."""
LOOKUP_PARAMETERS: Final = {"access": "r", "metainfo": "true"}


class NsqdAddress(NamedTuple):
    """An nsqd's address."""

    host: str
    port: int


class LookupResult(NamedTuple):
    """The nodes that have a topic; ``ext`` is whether it has ext headers, None if the server does not say."""

    nodes: list[NsqdAddress]
    ext: bool | None = None


class Discovery:
    """Kind of server at an address: an nsqlookupd's HTTP port, an nsqd's HTTP port, or an nsqd."""

    def __init__(self, host: str, port: int, *, timeout_s: float, tls: ClientTls | None = None) -> None:
        """With ``tls`` it is asked over HTTPS; over HTTP if it has none, as the nodes that it names must have TLS."""
        self._tls = tls
        self._host = host
        self._port = port
        self._timeout_s = timeout_s
        self._speaks_http: bool | None = None
        self._is_lookup = False
        self._direct = NsqdAddress(host, port)

    def lookup(self) -> bool:
        """Return whether an nsqlookupd is at the address; asked only once. Raises Unreachable if nothing responds."""
        if self._speaks_http is None:
            try:
                facts = self._get("/info", {})
            except _NotHttp:
                self._speaks_http = False
                return False
            except RemoteError as error:
                if error.code not in _OTHER_PAGES:
                    raise
                raise RemoteError(
                    f"the server at {self._host}:{self._port} speaks HTTP, and is neither an nsqlookupd nor an nsqd; "
                    f"{NAME_NSQD}",
                    code=error.code,
                ) from None
            with reading_response(NAME_NSQD):
                port = int(facts.get("tcp_port") or 0)
            self._speaks_http = True
            self._is_lookup = not port
            if not self._is_lookup:
                self._direct = NsqdAddress(self._host, port)
        return self._is_lookup

    def of_topic(self, topic: str) -> LookupResult:
        """Return the nodes that have the topic, or none."""
        if not self.lookup():
            return LookupResult([self._direct])
        try:
            found = self._get("/lookup", {"topic": topic, **LOOKUP_PARAMETERS})
        except RemoteError as error:
            if error.code == 404:
                return LookupResult([])
            raise
        with reading_response(NAME_NSQD):
            meta = found.get("meta") or {}
            nodes = {_parse_node(one, self._host): None for one in found.get("producers") or ()}
            nodes |= {_parse_node(one, self._host): None for one in (found.get("partitions") or {}).values()}
            result = LookupResult(list(nodes), meta.get("extend_support"))
        if len(result.nodes) > NODES_MAX:
            raise CorruptError(
                f"the server at {self._host}:{self._port} names {len(result.nodes)} nodes of topic {topic!r}, more "
                f"than {NODES_MAX}; {NAME_NSQD}"
            )
        return result

    def all(self) -> list[NsqdAddress]:
        """Return every node that is up."""
        if not self.lookup():
            return [self._direct]
        found = self._get("/nodes", {})
        with reading_response(NAME_NSQD):
            return [_parse_node(one, self._host) for one in found.get("producers") or ()]

    def topics(self) -> list[str] | None:
        """Return all topics, or None if only an nsqlookupd could say."""
        if not self.lookup():
            return None
        found = self._get("/topics", {})
        with reading_response(NAME_NSQD):
            return sorted(map(_require_text, found.get("topics") or ()))

    def create_extended(self, topic: str, partitions: int) -> None:
        """Have an ext topic made. Raises RemoteError if the nsqlookupd refuses; upstream's makes a plain one."""
        parameters = {"topic": topic, "partition_num": partitions, "replicator": 1, "extend": "true"}
        self._ask("POST", "/topic/create", parameters)

    def extend(self, topic: str) -> None:
        """Make a topic an ext topic. Raises RemoteError if the nsqlookupd refuses or cannot."""
        self._ask("POST", "/topic/meta/update", {"topic": topic, "upgradeext": "true"})

    def create(self, topic: str, partitions: int) -> bool:
        """Have an ext topic made; False if the nsqlookupd cannot, so that it is made by publishing."""
        try:
            self.create_extended(topic, partitions)
        except RemoteError as error:
            if error.code is None:
                raise
            return False
        return True

    def _get(self, path: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        found = self._ask("GET", path, parameters)
        # servers before 1.0 wrap every response
        with reading_response(NAME_NSQD):
            return dict(found.get("data") or {}) if "status_code" in found else found

    def _open_connection(self) -> HTTPConnection:
        if self._tls is None:
            return HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        context = self._tls.make_context()
        return HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=context)

    def _ask(self, method: str, path: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        place = f"{self._host}:{self._port}"
        with closing(self._open_connection()) as http:
            try:
                http.connect()
                http.sock = DeadlineSocket(http.sock, self._timeout_s)
                http.request(method, f"{path}?{urlencode(parameters)}", headers=V1)
                answer = http.getresponse()
                content = read_content(answer, RESPONSE_BYTES_MAX)
            except ssl.SSLError as failure:
                if not has_no_tls(failure):
                    raise Unreachable(f"nsqlookupd at {place}: TLS failed: {explain_failure(failure)}") from None
                self._tls = None
                return self._ask(method, path, parameters)
            except HTTPException:
                raise _NotHttp(place) from None
            except ConnectionResetError as failure:
                # an nsqd closes a connection that does not greet it
                raise _NotHttp(str(failure)) from None
            except OSError as failure:
                raise Unreachable(
                    f"neither nsqlookupd nor nsqd is reachable at {place} ({explain_failure(failure)}); "
                    "check that one is listening there (Lading prints nsqlookupd_http and nsqd_tcp when it starts)"
                ) from None
        if content is None:
            raise CorruptError(
                f"the server at {place} sends a response of more than {RESPONSE_BYTES_MAX} bytes; {NAME_NSQD}"
            )
        if answer.status >= 400:
            text = content.decode(errors="replace")[:200]
            raise RemoteError(f"{place} answered {path} with {answer.status} {text}", code=answer.status)
        try:
            found = json.loads(content or b"{}")
        except (ValueError, RecursionError):
            found = {}
        return found if isinstance(found, dict) else {}


class _NotHttp(Exception):
    """The server there does not speak HTTP: it is an nsqd."""


def _require_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _parse_node(one: Mapping[str, Any], host: str) -> NsqdAddress:
    return NsqdAddress(str(one.get("broadcast_address") or host), int(one["tcp_port"]))
