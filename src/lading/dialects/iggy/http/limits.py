"""Limits of Iggy's HTTP endpoint (iggy.md M6); those of messages are the binary dialect's."""

from __future__ import annotations

from typing import Final

BODY_BYTES_MAX: Final = 2 << 20
"""A longer request body gets status 413 before it is read."""
LOGIN_BYTES_MAX: Final = 64 << 10
"""The limit of a login, which anyone may send: parsing two megabytes of members takes a worker 60 ms."""
