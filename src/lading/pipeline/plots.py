"""Plots of a report: columns and bars as HTML and SVG without external resources, for screens of any width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

LABELS = 8
"""The maximum number of labels below a plot: a telephone has no room for more."""
COLUMN_REM = 4
"""The maximum width of a column, in rem."""
STYLE: Final = """
:root{--text:#1c2530;--soft:#5a6675;--line:#e3e8ee;--back:#fff;--good:#2b7a4b;--routed:#2f5d9b;--quarantined:#b3472f}
@media(prefers-color-scheme:dark){:root{--text:#dbe2ea;--soft:#93a1b1;--line:#2c3541;--back:#12161c;--good:#4ba673;
--routed:#6f9fe0;--quarantined:#e07a5f}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:var(--text);
background:var(--back);overflow-wrap:anywhere;print-color-adjust:exact;-webkit-print-color-adjust:exact}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .3rem}p.sub{color:var(--soft);margin:.2rem 0 .8rem}
table{border-collapse:collapse;width:100%;margin:.3rem 0 1.2rem}
th,td{text-align:left;padding:.25rem .7rem .25rem 0;border-bottom:1px solid var(--line)}
th{color:var(--soft);font-weight:600}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td:first-child{min-width:7.5rem}td.wide{width:45%}
.cards{display:grid;gap:.8rem;grid-template-columns:repeat(4,1fr);margin:.8rem 0}
.card{border:1px solid var(--line);border-radius:8px;padding:.5rem .9rem;color:var(--soft)}
.card b{display:block;font-size:1.4rem;color:var(--text);font-variant-numeric:tabular-nums}
.plot{display:grid;grid-template-columns:3.2rem 1fr;gap:0 .5rem;margin:0;color:var(--soft);font-size:.8rem}
.y{display:flex;flex-direction:column;justify-content:space-between;text-align:right;line-height:1;
font-variant-numeric:tabular-nums}
.plot svg{display:block;width:100%;height:10rem;border-bottom:1px solid var(--soft);
background:linear-gradient(var(--line),var(--line)) 0 0/100% 1px no-repeat,
linear-gradient(var(--line),var(--line)) 0 50%/100% 1px no-repeat}
.x{grid-column:2;display:flex}.x span{flex:1;min-width:0;overflow:hidden;white-space:nowrap;padding-top:.2rem}
.good{fill:var(--good);background:var(--good)}.routed{fill:var(--routed);background:var(--routed)}
.quarantined{fill:var(--quarantined);background:var(--quarantined)}
.key{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin:0 .3em 0 0}.legend{margin-right:1em}
.bar{display:block;height:.75rem;border-radius:2px;min-width:2px}
@media(max-width:34rem){.cards{grid-template-columns:1fr 1fr}td.wide{width:22%}}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One column of a plot: its label, its parts from the bottom up with their classes, and its tooltip."""

    label: str
    parts: tuple[tuple[float, str], ...]
    title: str


def columns(bars: Sequence[Bar], unit: str) -> str:
    """Return a plot of columns side by side, with an axis as high as the highest of them."""
    top = max(sum(value for value, _ in bar.parts) for bar in bars) or 1.0
    every = -(-len(bars) // LABELS)
    # whole groups of columns, so that labels stand below theirs
    room = -(-len(bars) // every) * every
    drawn = []
    for at, bar in enumerate(bars):
        below = 100.0
        drawn.append(f"<g><title>{escape(bar.title)}</title>")
        for value, kind in bar.parts:
            tall = 100 * value / top
            below -= tall
            drawn.append(f'<rect class="{kind}" x="{at + 0.08:.2f}" y="{below:.2f}" width=".84" height="{tall:.2f}"/>')
        drawn.append("</g>")
    labels = "".join(f"<span>{escape(bar.label)}</span>" for bar in bars[::every])
    axis = "".join(f"<span>{compact(value)}</span>" for value in (top, top / 2, 0))
    width = f'style="max-width:{COLUMN_REM * room}rem"'
    return (
        f'<figure class="plot"><div class="y" aria-hidden="true">{axis}</div>'
        f'<svg {width} viewBox="0 0 {room} 100" preserveAspectRatio="none" role="img" aria-label="{escape(unit)}">'
        f'{"".join(drawn)}</svg><div class="x" {width}>{labels}</div></figure>'
    )


def bars(head: str, unit: str, rows: Sequence[tuple[str, int]]) -> str:
    """Return a line per row with its number, its share of all and a bar of proportional length."""
    most, whole = max(count for _, count in rows), sum(count for _, count in rows)
    lines = "".join(
        f'<tr><td>{escape(label)}</td><td class="n">{count:,}</td><td class="n">{100 * count / whole:.1f} %</td>'
        f'<td class="wide"><span class="bar quarantined" style="width:{100 * count / most:.1f}%"></span></td></tr>'
        for label, count in rows
    )
    return f'<table><tr><th>{head}</th><th class="n">{unit}</th><th class="n">share</th><th></th></tr>{lines}</table>'


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose first column is text and whose other columns are numbers."""

    def line(tag: str, cells: Sequence[str]) -> str:
        return "".join(f"<{tag}{' class=n' if at else ''}>{escape(cell)}</{tag}>" for at, cell in enumerate(cells))

    lines = [line("th", heads), *(line("td", row) for row in rows)]
    return "<table>" + "".join(f"<tr>{each}</tr>" for each in lines) + "</table>"


def compact(value: float) -> str:
    """Format a number for an axis: 813, 12.3k, 4M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def duration(at_ms: float) -> str:
    """Format a duration for people: 1 ms, 16 s, 1.1 min."""
    for unit, size_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if at_ms >= size_ms:
            return f"{at_ms / size_ms:.2g} {unit}"
    return f"{at_ms:g} ms"
