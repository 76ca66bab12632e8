"""Requests to Lading's admin endpoint: kept-alive connections, retries with backoff, errors as sentences."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote

import httpx

from ..model.errors import Reason, Refusal, RemoteError, SettingError, Unreachable

Method = Literal["GET", "PUT", "POST", "DELETE"]
TOKEN_VARIABLE = "LADING_TOKEN"
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
PASSING = (Reason.STOPPING,)
"""Refusals that a repeated request may not meet again: the broker restarts."""


class AdminHttp:
    """One admin endpoint over HTTP/1.1.

    A request whose repetition does no harm (``again=True``) is repeated ``retries`` times with doubling, jittered
    pauses when the connection breaks; a server that never answered at all is Unreachable at once. Without ``token``
    the environment's LADING_TOKEN is used, where set.
    """

    def __init__(
        self, host: str, port: int, *, timeout_s: float = 30.0, retries: int = 6, token: str | None = None
    ) -> None:
        if timeout_s <= 0:
            raise SettingError(f"timeout_s is a number of seconds above 0, not {timeout_s!r}")
        if retries < 0:
            raise SettingError(f"retries is 0 or more, not {retries!r}")
        self.place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._retries = retries
        self._timeout_s = timeout_s
        self._answered = False
        token = token or os.environ.get(TOKEN_VARIABLE)
        headers = {"authorization": f"Bearer {token}"} if token else {}
        # no environment proxies: a broker address is meant as it is written
        self._client = httpx.Client(base_url=f"http://{self.place}", headers=headers, trust_env=False)

    def get(self, *parts: str | int, wait_ms: int = 0, **query: Any) -> httpx.Response:
        """GET the resource at these path parts; query values that are None are left out."""
        return self.request("GET", *parts, wait_ms=wait_ms, again=True, query=query)

    def request(
        self,
        method: Method,
        *parts: str | int,
        again: bool,
        query: Mapping[str, Any] | None = None,
        json: Any = None,
        content: bytes | None = None,
        wait_ms: int = 0,
    ) -> httpx.Response:
        """One request; Refusal where the server gives a reason, RemoteError for other statuses, else Unreachable."""
        path = "/" + "/".join(quote(str(part), safe="") for part in parts)
        params = {name: value for name, value in (query or {}).items() if value is not None}
        timeout = httpx.Timeout(self._timeout_s + wait_ms / 1000, connect=self._timeout_s)
        pause_s = FIRST_PAUSE_S
        for left in range(self._retries, -1, -1):
            try:
                response = self._client.request(
                    method, path, params=params, json=json, content=content, timeout=timeout
                )
                self._answered = True
                if response.is_success:
                    return response
                error = refusal(response, f"{method} {self.place}{path}")
                if not (again and left and isinstance(error, Refusal) and error.reason in PASSING):
                    raise error
            except httpx.TransportError as failure:
                broken_before_sent = isinstance(failure, httpx.ConnectError | httpx.ConnectTimeout)
                if not self._answered or not left or not (again or broken_before_sent):
                    raise self._unreachable(failure) from None
            time.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Close the kept connections."""
        self._client.close()

    def _unreachable(self, failure: httpx.TransportError) -> Unreachable:
        if isinstance(failure, httpx.TimeoutException) and self._answered:
            return Unreachable(f"the broker at {self.place} did not answer within {self._timeout_s:g} s")
        if self._answered:
            return Unreachable(
                f"the connection to the broker at {self.place} broke and {self._retries} retries did not bring it back "
                f"({_cause(failure)})"
            )
        return Unreachable(
            f"no broker answers at {self.place} ({_cause(failure)}); start one with `lading serve --data DIR`, "
            "or name the address of its admin endpoint"
        )


def refusal(response: httpx.Response, request: str) -> Refusal | RemoteError:
    """The error that an answer with an error status stands for."""
    try:
        document = response.json()
        return Refusal(Reason(document["reason"]), str(document["message"]))
    except (ValueError, KeyError, TypeError):
        text = " ".join(response.text.split())[:200]
        return RemoteError(
            f"{request} was answered with status {response.status_code}" + (f": {text}" if text else ""),
            code=response.status_code,
        )


def _cause(failure: BaseException) -> str:
    text = str(failure) or type(failure).__name__
    return text[:1].lower() + text[1:]
