"""Single sends of the classic framing that are taken together: the place of their line (iggy.md A1)."""

from __future__ import annotations

from typing import Final

LENGTH_BYTES: Final = 4
"""The length before a request, which does not count it; then comes the line: the command, and what follows it up to
the messages or their number."""
