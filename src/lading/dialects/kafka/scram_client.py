"""The client's half of SCRAM as Kafka has it (RFC 5802, RFC 7677): no channel binding, names without SASLprep."""

from __future__ import annotations

import binascii
import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from typing import Final

from ...model.errors import MalformedMessage
from .scram import HASHES, NONCE_BYTES

ITERATIONS_MIN: Final = 4096
"""RFC 7677 section 4: with fewer iterations, a false server could guess the password from the client's proof."""
ITERATIONS_MAX: Final = 1_000_000
"""A server must not keep a client busy for long either."""


class ScramLogin:
    """One login: ``first`` is the first message, ``answer`` responds to the server's first one, ``check`` checks its
    last one.
    """

    def __init__(self, mechanism: str, name: str, password: str, nonce: str | None = None) -> None:
        """``nonce`` is this client's part; tests pass that of a published example."""
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce or b64encode(secrets.token_bytes(NONCE_BYTES)).decode()
        self._bare = f"n={name.replace('=', '=3D').replace(',', '=2C')},r={self._nonce}"
        self._signature = b""

    def first(self) -> bytes:
        """Return the first message."""
        return f"n,,{self._bare}".encode()

    def answer(self, message: bytes) -> bytes:
        """Return the proof for the server's challenge. Raises MalformedMessage if that is invalid or weak."""
        try:
            text = message.decode()
            nonce, salt, iterations = (part[2:] for part in text.split(",")[:3])
            salt_bytes, count = b64decode(salt, validate=True), int(iterations)
        except (ValueError, binascii.Error):
            raise MalformedMessage("SCRAM: the server's first message has no nonce, salt and iterations") from None
        if not text.startswith("r=") or not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise MalformedMessage("SCRAM: the server's nonce does not begin with the client's")
        if not ITERATIONS_MIN <= count <= ITERATIONS_MAX:
            raise MalformedMessage(f"SCRAM: {count} iterations; expected {ITERATIONS_MIN} to {ITERATIONS_MAX}")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt_bytes, count)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        without_proof = f"c=biws,r={nonce}"
        signed = f"{self._bare},{text},{without_proof}".encode()
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), signed, self._hash)
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), signed, self._hash)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def check(self, message: bytes) -> None:
        """Raise MalformedMessage if the server has not proved that it knows the password too."""
        if not hmac.compare_digest(message.split(b",")[0], b"v=" + b64encode(self._signature)):
            raise MalformedMessage("SCRAM: the server does not know the password: it is not who it claims to be")
