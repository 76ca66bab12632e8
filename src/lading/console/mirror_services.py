"""Mirrors that run as a service (``lading mirror run``), as its /health describes them."""

from __future__ import annotations

import asyncio
import json
from typing import Final
from urllib.parse import urlsplit

from ..model.errors import SettingError
from ..runtime.document_fetch import fetch_document
from .responses import Document

FETCH_S: Final = 3.0
HEALTH_BYTES_MAX: Final = 8 << 20
FIELDS: Final = (
    "state", "source", "target", "topics", "messages", "lag_messages", "messages_per_s", "refused", "errors",
    "last_sent", "last_error", "last_error_at",
)  # fmt: skip


def require_service_url(url: str) -> str:
    """Return the URL of a service without a slash at its end. Raises SettingError if it cannot be one."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
        raise SettingError(f"mirror service {url!r}: invalid; write its address, such as http://127.0.0.1:9465")
    return url.rstrip("/")


def describe_service(url: str) -> Document:
    """Return the mirrors of a service with their state, lag and rate, or why it cannot be read. Takes some seconds."""
    found: Document = {"name": url, "service": True}
    try:
        document = json.loads(asyncio.run(_fetch_health(f"{url}/health")))
        mirrors = document["mirrors"]
        rows = [{"name": name} | {key: one.get(key) for key in FIELDS} for name, one in mirrors.items()]
    except TimeoutError:
        return found | {"error": f"{url} sent no whole response within {FETCH_S:g} s"}
    except OSError as error:
        return found | {"error": f"{url} does not respond: {error}; start it with `lading mirror run FILE`"}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return found | {"error": f"{url} is not a service of `lading mirror run`: its /health lists no mirrors"}
    return found | {"status": document.get("status"), "uptime_s": document.get("uptime_s"), "mirrors": rows}


async def _fetch_health(url: str) -> bytes:
    async with asyncio.timeout(FETCH_S):
        return await fetch_document(url, HEALTH_BYTES_MAX)
