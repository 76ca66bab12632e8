"""The profile of a topic as one HTML page without external resources, and the lines of its plots as text."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Final

from .plots import STYLE, Bar, bars, columns, table

LINE: Final = "▁▂▃▄▅▆▇█"
HEADERS_PLOTTED: Final = 30


def draw_line(shares: Sequence[float]) -> str:
    """Return percentages as a line of blocks, a blank for none."""
    return "".join(" " if not share else LINE[min(len(LINE) - 1, int(share * len(LINE) / 100))] for share in shares)


def describe_looks(looks: dict[str, float]) -> str:
    """Return what values look like, the most frequent first, with shares unless all look the same.

    A look that some values have is never shown with 0 %, nor one of several with 100 %.
    """
    if len(looks) == 1:
        return next(iter(looks))
    return ", ".join(f"{look} {_describe_share(100 * share)}" for look, share in looks.items())


def _describe_share(percent: float) -> str:
    return "< 1 %" if percent < 1 else "> 99 %" if percent > 99 else f"{percent:.0f} %"


def profile_page(profile: dict[str, Any], contract: str) -> str:
    """Return the page of a profile's document; ``contract`` is the section that it proposes."""
    rows, intervals = profile["headers"], profile["intervals"]
    parts = [
        f"<h1>{escape(profile['topic'])}</h1>",
        f'<p class="sub">{profile["messages"]:,} message{"s" * (profile["messages"] != 1)} of '
        f"{escape(profile['from'])}: {profile['header_bytes']:,} "
        f"bytes of headers, {profile['key_bytes']:,} of keys, {profile['payload_bytes']:,} of payloads</p>",
    ]
    if profile["lost"]:
        parts.append(f'<p class="sub"><b>{escape(profile["lost"])}</b></p>')
    if rows:
        weights = [(row["key"], row["bytes"]) for row in rows[:HEADERS_PLOTTED]]
        parts += ["<h2>Bytes by header</h2>", '<p class="sub">names and values; share is of all headers</p>']
        parts.append(bars("header", "bytes", weights))
    plotted = [
        Bar(
            one["begin"][11:19] if one["seconds"] < 86_400 else one["begin"][:10],
            ((one["messages"], "routed"),),
            f"{one['begin']}: {one['messages']:,} messages",
        )
        for one in intervals
    ]
    parts += ["<h2>Messages over time</h2>", columns(plotted, "messages by their time")]
    if rows:
        parts += ["<h2>Headers</h2>", _headers_table(rows)]
    if profile["payload"]["members"]:
        parts += ["<h2>Members of the payload</h2>", _members_table(profile["payload"]["members"])]
    heavy = [
        (
            f"{one['partition']}/{one['offset']}",
            *(f"{one[name]:,}" for name in ("header_bytes", "headers", "payload_bytes")),
        )
        for one in profile["heaviest"]
    ]
    parts += [
        "<h2>Heaviest messages</h2>",
        table(("partition/offset", "bytes of headers", "headers", "payload"), heavy),
    ]
    parts += ["<h2>Proposed contract</h2>", f"<pre>{escape(contract)}</pre>"]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(profile["topic"])}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="color-scheme" '
        f'content="light dark"><style>{STYLE}pre{{overflow:auto}}</style></head>\n<body>\n'
        + "\n".join(parts) + "\n</body></html>\n"
    )  # fmt: skip


def _headers_table(rows: Sequence[dict[str, Any]]) -> str:
    heads = (
        "header",
        "looks like",
        "kinds",
        "share",
        "change",
        "null",
        "empty",
        "repeated",
        "distinct",
        "of all bytes",
    )
    lines = [
        (
            row["key"], describe_looks(row["looks"]), row["kinds"], f"{row['share']:.1f} %", draw_line(row["change"]),
            *(f"{row[name]:,}" for name in ("nulls", "empty", "duplicates")),
            f"{row['distinct']:,}" if row["distinct_exact"] else f"≈ {row['distinct']:,}",
            f"{row['bytes_share']:.1f} %",
        )
        for row in rows
    ]  # fmt: skip
    return f'<div style="overflow:auto">{table(heads, lines)}</div>'


def _members_table(rows: Sequence[dict[str, Any]]) -> str:
    heads = ("member", "type", "kinds", "share", "null", "examples")
    lines = [
        (row["path"], row["type"], row["kinds"], f"{row['share']:.1f} %", f"{row['nulls']:,}", row["examples"])
        for row in rows
    ]
    return f'<div style="overflow:auto">{table(heads, lines)}</div>'
