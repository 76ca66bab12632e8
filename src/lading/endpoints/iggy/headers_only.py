"""Polls of release 0.0.30: headers, and neither state nor checksum (docs/reference/protocols/iggy.md#releases)."""

from __future__ import annotations

from dataclasses import replace

from ...broker.core.read import ReadResult
from ...dialects.iggy.classic.headers_only import strip
from ..base.carrying import Fit
from .answers import Answer, PolledPlace, answer_of
from .poll import Poller


def render_headers_only(reading: ReadResult, place: PolledPlace, fit: Fit | None = None) -> Answer:
    """Return the messages of a reading as 0.0.30 has them; from any thread."""
    answer = answer_of(reading, place, fit)
    return replace(answer, parts=[strip(b"".join(answer.parts))])


class HeadersOnlyPoller(Poller):
    """Answers polls with what the release can read of each message."""

    shows_states = False
    render = staticmethod(render_headers_only)
