"""Short-lived keys for the objects of one table, and the check of requests that are signed with them (SigV4).

The catalog vends a key with each table that it loads: engines sign what they ask of the bucket with it, as they do for
S3 (AWS Signature Version 4, Authorization header). Its session token says for which table and
for whom it is, and only this process can make one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ..runtime.private_files import write_private_file

LIFETIME_S: Final = 3_600
"""A key that is found in a log or a query plan after this time cannot be used."""
SECRET_BYTES: Final = 32
REGION: Final = "us-east-1"
_AUTHORIZATION: Final = re.compile(
    r"AWS4-HMAC-SHA256\s+Credential=(?P<key>[^/,\s]+)/(?P<scope>\d{8}/[\w-]+/s3/aws4_request),\s*"
    r"SignedHeaders=(?P<headers>[\w;-]+),\s*Signature=(?P<signature>[0-9a-f]{64})"
)


class Grant(NamedTuple):
    """The use of a vended key: the caller it was vended to, and the uuid of the table."""

    caller: str
    table: str


class VendedKey(NamedTuple):
    """A key as engines take it."""

    access_key_id: str
    secret_access_key: str
    session_token: str
    expires_s: int
    """When it ends, in seconds since 1970."""


class VendedKeys:
    """Vends keys, and finds what a signed request may read."""

    def __init__(self, secret: bytes | None = None, lifetime_s: int = LIFETIME_S) -> None:
        """``secret`` is that of an earlier process, whose keys then are good in this one too."""
        self._secret = secret or secrets.token_bytes(32)
        self._lifetime_s = lifetime_s

    def vend(self, grant: Grant, now_s: float) -> VendedKey:
        """Return a key that is good for ``lifetime_s``."""
        end_s = int(now_s) + self._lifetime_s
        facts = json.dumps([grant.caller, grant.table, end_s], separators=(",", ":")).encode()
        token = base64.urlsafe_b64encode(facts).decode() + "." + self._sign("token", facts.decode())
        return VendedKey(f"LADING{self._sign('id', token)[:14].upper()}", self._sign("key", token), token, end_s)

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(self._secret, f"{purpose}\n{text}".encode(), "sha256").hexdigest()

    def find_grant(self, method: str, path: str, query: str, headers: Mapping[str, str], now_s: float) -> Grant | None:
        """Return what a request was signed for; None if its signature, its token or its time is not right.

        ``path`` and ``query`` are as they were sent, header names in lower case.
        """
        found = _AUTHORIZATION.fullmatch(headers.get("authorization", "").strip())
        token = headers.get("x-amz-security-token", "")
        facts = self._read_token(token)
        if found is None or facts is None or facts[2] <= now_s:
            return None
        grant = Grant(facts[0], facts[1])
        if not _is_same(f"LADING{self._sign('id', token)[:14].upper()}", found["key"]):
            return None
        signed = found["headers"].split(";")
        if "host" not in signed:
            return None
        canonical = "\n".join(
            (
                method,
                path,
                "&".join(f"{name}={value}" for name, value in sorted(_split_query(query))),
                *(f"{name}:{' '.join(headers.get(name, '').split())}" for name in signed),
                "",
                found["headers"],
                headers.get("x-amz-content-sha256", hashlib.sha256(b"").hexdigest()),
            )
        )
        scope = found["scope"]
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        text = "\n".join(("AWS4-HMAC-SHA256", headers.get("x-amz-date", ""), scope, digest))
        key = f"AWS4{self._sign('key', token)}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        expected = hmac.new(key, text.encode(), "sha256").hexdigest()
        return grant if hmac.compare_digest(expected, found["signature"]) else None

    def _read_token(self, token: str) -> tuple[str, str, int] | None:
        body, _, signature = token.partition(".")
        try:
            facts = base64.urlsafe_b64decode(body.encode())
            if not _is_same(self._sign("token", facts.decode()), signature):
                return None
            caller, table, end_s = json.loads(facts)
        except ValueError:
            return None
        return str(caller), str(table), int(end_s)


def load_secret(path: Path) -> bytes:
    """Return the secret in a file, made at the first start: keys outlive a restart. Raises OSError for a full disk."""
    with suppress(FileNotFoundError):
        held = path.read_bytes()
        if len(held) == SECRET_BYTES:
            return held
    made = secrets.token_bytes(SECRET_BYTES)
    write_private_file(path, made)
    return made


def _is_same(expected: str, sent: str) -> bool:
    # as bytes: compare_digest takes no text with other characters than those of ASCII
    return hmac.compare_digest(expected.encode(), sent.encode())


def _split_query(query: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        yield name, value
