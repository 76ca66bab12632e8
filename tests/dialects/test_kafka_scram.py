"""SCRAM's server half against the example of RFC 7677, and against what is no SCRAM."""

from __future__ import annotations

import hashlib
from base64 import b64decode
from contextlib import suppress

import pytest

from lading.broker.core.access.credentials import ScramVerifier, make_verifier
from lading.dialects.kafka.scram import ScramExchange
from lading.model.errors import MalformedMessage

NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
LAST = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def verifier() -> ScramVerifier:
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    return make_verifier("SCRAM-SHA-256", hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096), salt, 4096)


def begun(nonce: str | None = NONCE, first: bytes = FIRST) -> ScramExchange:
    exchange = ScramExchange("SCRAM-SHA-256", nonce)
    assert exchange.begin(first) == "user"
    exchange.challenge(verifier())
    return exchange


def test_the_example_of_rfc_7677() -> None:
    exchange = ScramExchange("SCRAM-SHA-256", NONCE)
    assert exchange.begin(FIRST) == "user"
    assert exchange.challenge(verifier()) == CHALLENGE
    assert exchange.finish(LAST) == SIGNATURE


def test_a_replayed_proof_is_worth_nothing() -> None:
    assert begun(nonce=None).finish(LAST) is None


@pytest.mark.parametrize("at", range(0, len(LAST), 5))
def test_a_truncated_or_changed_proof(at: int) -> None:
    for message in (LAST[:at], LAST[:at] + b"A" + LAST[at + 1 :], LAST[:at] + LAST[at + 1 :]):
        if message == LAST:
            continue
        with suppress(MalformedMessage):
            assert begun().finish(message) is None


@pytest.mark.parametrize(
    "message",
    [
        b"", b"n", b"n,,", b"p=tls-unique,,n=user,r=x", b"n,,n=user", b"n,,r=x,n=user", b"n,a=root,n=user,r=x",
        b"n,,n=us=er,r=x", b"n,,n=user,r=", b"\xff", b"n,,n=user,r=x,tokenauth=true", b"n,,n=" + b"u" * 5000 + b",r=x",
    ],
)  # fmt: skip
def test_what_is_no_first_message(message: bytes) -> None:
    with pytest.raises(MalformedMessage, match="SCRAM"):
        ScramExchange("SCRAM-SHA-256").begin(message)


def test_names_are_unescaped() -> None:
    assert ScramExchange("SCRAM-SHA-512").begin(b"y,,n=a=2Cb=3Dc,r=x") == "a,b=c"
