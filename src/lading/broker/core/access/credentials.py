"""Passwords and tokens as they are stored: a client's secret cannot be computed from them.

A password is kept as a salted slow hash (scrypt) and, because SCRAM cannot be checked against that, as the verifiers of
SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802 section 3, RFC 7677). A token is random, so that a plain hash of it is enough.

``make_credentials`` and ``check_password`` take tenths of a second: they are for worker threads.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, NamedTuple, Self

from ....model.lazy_dataclass import lazy_dataclass

SALT_BYTES: Final = 16
SCRYPT_LOG2_N: Final = 14
SCRYPT_R: Final = 8
SCRYPT_P: Final = 5
"""16 MiB and a fifth of a second, as OWASP's password storage cheat sheet has it."""
_SCRYPT_BYTES_MAX: Final = 64 << 20
SCRAM_ITERATIONS: Final = 16_384
"""The most that Kafka's tools take (``kafka-configs --alter``); RFC 7677 asks for 4096 or more."""
SCRAM_ITERATIONS_MIN: Final = 4_096
SCRAM_HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Mechanisms, and the hash of each as hashlib calls it."""
TOKEN_PREFIX: Final = "lading_"
TOKEN_BYTES: Final = 32


class ScramVerifier(NamedTuple):
    """Stored keys with which a server takes part in SCRAM (RFC 5802 section 3)."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def make_verifier(mechanism: str, salted_password: bytes, salt: bytes, iterations: int) -> ScramVerifier:
    """Return the verifier of a password that was salted by the rule of ``mechanism``."""
    name = SCRAM_HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    return ScramVerifier(salt, iterations, stored_key, hmac.digest(salted_password, b"Server Key", name))


@lazy_dataclass(frozen=True, slots=True)
class Credentials:
    """One password, in every form that logins are checked against."""

    scrypt: str = ""
    """``log2(n)$r$p$salt$hash``, salt and hash in hexadecimal; empty if only SCRAM verifiers are known."""
    scram: Mapping[str, ScramVerifier] = field(default_factory=dict)
    """Verifiers by mechanism."""

    def document(self) -> dict[str, Any]:
        """Return the credentials as JSON."""
        scram = {
            mechanism: [one.salt.hex(), one.iterations, one.stored_key.hex(), one.server_key.hex()]
            for mechanism, one in self.scram.items()
        }
        return {"scrypt": self.scrypt, "scram": scram}

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """Return the credentials of a ``document``; KeyError, TypeError or ValueError if it has none."""
        scram = {
            mechanism: ScramVerifier(bytes.fromhex(salt), int(iterations), bytes.fromhex(stored), bytes.fromhex(server))
            for mechanism, (salt, iterations, stored, server) in document["scram"].items()
        }
        return cls(str(document["scrypt"]), scram)


def make_credentials(password: str) -> Credentials:
    """Return the stored form of a password; slow."""
    data = password.encode()
    salt = secrets.token_bytes(SALT_BYTES)
    digest = _hash_by_scrypt(data, salt, SCRYPT_LOG2_N, SCRYPT_R, SCRYPT_P)
    scram = {}
    for mechanism, name in SCRAM_HASHES.items():
        scram_salt = secrets.token_bytes(SALT_BYTES)
        # without SASLprep, as Kafka's clients have it: their bytes would not fit otherwise
        salted = hashlib.pbkdf2_hmac(name, data, scram_salt, SCRAM_ITERATIONS)
        scram[mechanism] = make_verifier(mechanism, salted, scram_salt, SCRAM_ITERATIONS)
    return Credentials(f"{SCRYPT_LOG2_N}${SCRYPT_R}${SCRYPT_P}${salt.hex()}${digest.hex()}", scram)


def check_password(credentials: Credentials, password: str) -> bool:
    """Return whether it is this password; slow, and as slow for credentials that hold nothing."""
    # no password that was set has lone surrogates, and one that is tried is only wrong
    data = password.encode(errors="surrogatepass")
    if credentials.scrypt:
        log2_n, r, p, salt, digest = credentials.scrypt.split("$")
        return hmac.compare_digest(
            _hash_by_scrypt(data, bytes.fromhex(salt), int(log2_n), int(r), int(p)), bytes.fromhex(digest)
        )
    for mechanism, verifier in credentials.scram.items():
        salted = hashlib.pbkdf2_hmac(SCRAM_HASHES[mechanism], data, verifier.salt, verifier.iterations)
        made = make_verifier(mechanism, salted, verifier.salt, verifier.iterations)
        return hmac.compare_digest(made.stored_key, verifier.stored_key)
    _hash_by_scrypt(data, bytes(SALT_BYTES), SCRYPT_LOG2_N, SCRYPT_R, SCRYPT_P)
    return False


def make_token() -> str:
    """Return a new token, to be shown once."""
    return TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def hash_token(token: str) -> str:
    """Return the stored form of a token."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def _hash_by_scrypt(password: bytes, salt: bytes, log2_n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=1 << log2_n, r=r, p=p, maxmem=_SCRYPT_BYTES_MAX, dklen=32)
