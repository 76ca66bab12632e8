"""The server's half of SCRAM as Kafka has it (RFC 5802, RFC 7677): no channel binding, names without SASLprep.

``ScramExchange`` is the exchange with one client: ``begin`` takes its first message, the caller looks the verifier up,
``challenge`` returns the server's response, ``finish`` checks the proof. All raise MalformedMessage for input that is
not a valid message; for a wrong proof ``finish`` returns None.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from typing import Final, Protocol

from ...model.errors import MalformedMessage

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MESSAGE_BYTES_MAX: Final = 4096
NONCE_BYTES: Final = 24


class Verifier(Protocol):
    """The stored form of a password."""

    @property
    def salt(self) -> bytes: ...
    @property
    def iterations(self) -> int: ...
    @property
    def stored_key(self) -> bytes: ...
    @property
    def server_key(self) -> bytes: ...


class ScramExchange:
    """One login by SCRAM."""

    def __init__(self, mechanism: str, nonce: str | None = None) -> None:
        """``nonce`` is this server's part; tests pass that of a published example."""
        self._hash = HASHES[mechanism]
        self._own_nonce = nonce or b64encode(secrets.token_bytes(NONCE_BYTES)).decode()
        self.name = ""

    def begin(self, message: bytes) -> str:
        """Take the client's first message; return the user's name."""
        text = _decode_text(message)
        binding, comma, rest = text.partition(",")
        identity, second, bare = rest.partition(",")
        if binding not in ("n", "y") or not comma or not second:
            raise MalformedMessage("SCRAM: channel binding is not supported, or the first message is malformed")
        self._header = f"{binding},{identity},".encode()
        name, _, rest = bare.partition(",")
        nonce, *extensions = rest.split(",")
        if not name.startswith("n=") or not nonce.startswith("r=") or len(nonce) < 3:
            raise MalformedMessage("SCRAM: the first message has no name and nonce")
        if "tokenauth=true" in extensions:
            raise MalformedMessage("SCRAM: delegation tokens are not supported")
        self.name = _unescape(name[2:])
        if identity and _unescape(identity.removeprefix("a=")) != self.name:
            raise MalformedMessage("SCRAM: authorization as another user is not supported")
        self._nonce = nonce[2:] + self._own_nonce
        self._bare = bare
        return self.name

    def challenge(self, verifier: Verifier) -> bytes:
        """Return the server's first message."""
        self.challenged = self._verifier = verifier
        self._first = f"r={self._nonce},s={b64encode(verifier.salt).decode()},i={verifier.iterations}"
        return self._first.encode()

    def finish(self, message: bytes) -> bytes | None:
        """Return the server's last message to a right proof, or None to a wrong one."""
        text = _decode_text(message)
        without_proof, found, proof_text = text.rpartition(",p=")
        fields = without_proof.split(",")
        if not found or len(fields) < 2 or not fields[0].startswith("c=") or not fields[1].startswith("r="):
            raise MalformedMessage("SCRAM: the last message has no binding, nonce and proof")
        proof = _decode_base64(proof_text)
        if _decode_base64(fields[0][2:]) != self._header or not fields[1].endswith(self._nonce):
            # a final message that was replayed, or is of another exchange; only the end is compared: older librdkafka,
            # such as that of kcat 1.7.1, puts its own nonce in front once more, and this server's part is new each time
            # all the same
            return None
        signed = f"{self._bare},{self._first},{without_proof}".encode()
        signature = hmac.digest(self._verifier.stored_key, signed, self._hash)
        if len(proof) != len(signature):
            return None
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), self._verifier.stored_key):
            return None
        return b"v=" + b64encode(hmac.digest(self._verifier.server_key, signed, self._hash))


def _decode_text(message: bytes) -> str:
    try:
        if len(message) <= MESSAGE_BYTES_MAX:
            return message.decode()
    except UnicodeDecodeError:
        pass
    raise MalformedMessage("SCRAM: a message is not UTF-8, or too long")


def _decode_base64(text: str) -> bytes:
    try:
        return b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        raise MalformedMessage("SCRAM: no Base64") from None


def _unescape(name: str) -> str:
    if "=" in name.replace("=2C", "").replace("=3D", ""):
        raise MalformedMessage("SCRAM: the name has an '=' that is not escaped")
    return name.replace("=2C", ",").replace("=3D", "=")
