"""The form of each protocol's page ``not_served``: what its own server does and this broker does not, and why.

``packaging/reference_pages.py`` prints the pages into the reference; a reason that is not true any more is a row to
delete.
"""

from __future__ import annotations

from typing import NamedTuple


class NotServed(NamedTuple):
    """One row: the ``subject`` as its server's documentation calls it, in Markdown, as the other fields."""

    subject: str
    reason: str
    instead: str
    """The way that works here; empty if nothing is needed."""
