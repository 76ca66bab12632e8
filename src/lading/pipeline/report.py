"""The report of a pipeline as one HTML page without anything from elsewhere: counts, rates, delays, reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from typing import Final

from ..spark.manifest import TABLE, Manifest
from ..spark.state import State
from .reasons import reason_of

WIDTH, HEIGHT, MARGIN = 720, 160, 46
GOOD, ROUTED, QUARANTINED = "#2b7a4b", "#2f5d9b", "#b3472f"
OUTCOMES: Final = {"good": GOOD, "routed": ROUTED, "quarantined": QUARANTINED}
BATCHES_SHOWN = 200
STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1c2530;background:#fff}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .4rem}p.sub{color:#5a6675;margin:.2rem 0 1rem}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.25rem .7rem .25rem 0;border-bottom:1px solid #e3e8ee}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}svg{width:100%;height:auto;display:block}
svg text{font-size:11px;fill:#5a6675}.cards{display:flex;gap:1rem;flex-wrap:wrap}
.card{border:1px solid #e3e8ee;border-radius:8px;padding:.6rem 1rem;min-width:8rem}
.card b{display:block;font-size:1.4rem;font-variant-numeric:tabular-nums}
@media(prefers-color-scheme:dark){body{background:#12161c;color:#dbe2ea}th,td,.card{border-color:#2c3541}
p.sub,svg text{color:#93a1b1;fill:#93a1b1}}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One column of a plot: its label, and its parts from below with their colours."""

    label: str
    parts: tuple[tuple[float, str], ...]
    title: str


def report(state: State, pipeline: str, first: int = 1) -> str:
    """The page over all manifests from number ``first`` on; without any it says so."""
    manifests = [state.manifests.read(number) for number in state.manifests.numbers() if number >= first]
    return page(pipeline, manifests)


def page(pipeline: str, manifests: Sequence[Manifest]) -> str:
    """The page over these manifests."""
    counts: Counter[str] = Counter()
    for manifest in manifests:
        counts.update(manifest.counts)
    body = [f"<h1>{escape(pipeline)}</h1>", f'<p class="sub">{escape(_span(manifests))}</p>', _cards(counts)]
    if manifests:
        body += ["<h2>Messages by batch</h2>", _legend(), _plot(_batches(manifests), "messages")]
        body += ["<h2>Rate between batches</h2>", _plot(_rates(manifests), "messages a second")]
        body += ["<h2>Delay from event to table</h2>", _plot(_delays(counts), "messages")]
        body += ["<h2>Destinations</h2>", _destinations(counts, manifests)]
    body += ["<h2>Why messages failed</h2>", _reasons(counts)]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(pipeline)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>\n<body>\n'
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _span(manifests: Sequence[Manifest]) -> str:
    if not manifests:
        return "nothing has been published yet"
    first, last = _moment(manifests[0].written_us), _moment(manifests[-1].written_us)
    return (
        f"manifests {manifests[0].number} to {manifests[-1].number}, {first:%Y-%m-%d %H:%M:%S} to {last:%H:%M:%S} UTC"
    )


def _moment(at_us: int) -> datetime:
    return datetime.fromtimestamp(at_us / 1e6, UTC)


def _cards(counts: Counter[str]) -> str:
    read = counts["read"]
    stepped = "passed" in counts
    parts = ("passed", "quarantined") if stepped else tuple(OUTCOMES)
    whole = sum(counts[name] for name in parts)
    cards = [("read", read, "")]
    cards += [(name, counts[name], f"{100 * counts[name] / read:.1f} %" if read else "") for name in OUTCOMES]
    shown = "".join(f'<div class="card">{name}<b>{count:,}</b>{share}</div>' for name, count, share in cards)
    check = f"{' + '.join(parts)} = read" if whole == read else f"the counts differ by {read - whole:,}"
    check += "; good and routed are rows that the SQL steps made" if stepped else ""
    return f'<div class="cards">{shown}</div><p class="sub">{check}</p>'


def _legend() -> str:
    keys = "".join(f'<span style="color:{colour}">&#9632;</span> {name} &nbsp; ' for name, colour in OUTCOMES.items())
    return f'<p class="sub">{keys}</p>'


def _batches(manifests: Sequence[Manifest]) -> list[Bar]:
    return [
        Bar(
            str(manifest.number),
            tuple((manifest.counts.get(name, 0), colour) for name, colour in OUTCOMES.items()),
            f"batch {manifest.number}: " + ", ".join(f"{manifest.counts.get(name, 0):,} {name}" for name in OUTCOMES),
        )
        for manifest in manifests[-BATCHES_SHOWN:]
    ]


def _rates(manifests: Sequence[Manifest]) -> list[Bar]:
    """Messages a second since the batch before; the first one has none before it."""
    bars = []
    for before, manifest in pairwise(manifests):
        seconds = (manifest.written_us - before.written_us) / 1e6
        if seconds > 0:
            rate = manifest.counts.get("read", 0) / seconds
            bars.append(Bar(str(manifest.number), ((rate, ROUTED),), f"batch {manifest.number}: {rate:,.0f} a second"))
    return bars[-BATCHES_SHOWN:]


def _delays(counts: Counter[str]) -> list[Bar]:
    """Powers of two of milliseconds, as tasks count them."""
    powers = {int(name.partition(".")[2]): count for name, count in counts.items() if name.startswith("delay.")}
    if not powers:
        return []
    return [
        Bar(_duration(2**power), ((powers.get(power, 0), GOOD),),
            f"{_duration(2**power)} to {_duration(2 ** (power + 1))}: {powers.get(power, 0):,}")
        for power in range(min(powers), max(powers) + 1)
    ]  # fmt: skip


def _duration(at_ms: float) -> str:
    for unit, size_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if at_ms >= size_ms:
            return f"{at_ms / size_ms:.3g} {unit}"
    return f"{at_ms:g} ms"


def _destinations(counts: Counter[str], manifests: Iterable[Manifest]) -> str:
    sizes: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    for manifest in manifests:
        for file in manifest.files:
            if file.kind == TABLE:
                sizes[file.table] += file.size_bytes
                rows[file.table] += file.rows
    named = [(name.removeprefix("to."), count) for name, count in sorted(counts.items()) if name.startswith("to.")]
    first = _table(("destination", "messages"), [(name, f"{count:,}") for name, count in named])
    return first + _table(
        ("table", "rows", "bytes"), [(name, f"{rows[name]:,}", f"{sizes[name]:,}") for name in sorted(rows)]
    )


def _reasons(counts: Counter[str]) -> str:
    found = [(count, reason) for name, count in counts.items() if (reason := reason_of(name)) is not None]
    if not found:
        return "<p>Nothing failed.</p>"
    most = max(count for count, _ in found)
    lines = []
    for count, (word, header) in sorted(found, reverse=True):
        label = f"{word} {header}".strip()
        lines.append(
            f'<tr><td>{escape(label)}</td><td class="n">{count:,}</td><td style="width:50%">'
            f'<svg viewBox="0 0 400 14" role="img" aria-label="{count:,}">'
            f'<rect width="{400 * count / most:.1f}" height="12" rx="2" fill="{QUARANTINED}"/></svg></td></tr>'
        )
    return f'<table><tr><th>reason</th><th class="n">messages</th><th></th></tr>{"".join(lines)}</table>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(tag: str, cells: Sequence[str]) -> str:
        return "".join(f"<{tag}{' class=n' if at else ''}>{escape(cell)}</{tag}>" for at, cell in enumerate(cells))

    lines = [line("th", heads), *(line("td", row) for row in rows)]
    return "<table>" + "".join(f"<tr>{each}</tr>" for each in lines) + "</table>"


def _plot(bars: Sequence[Bar], unit: str) -> str:
    """Columns side by side, the largest value at the axis."""
    if not bars:
        return '<p class="sub">one batch only: there is nothing to compare</p>'
    top = max(sum(value for value, _ in bar.parts) for bar in bars) or 1.0
    step = (WIDTH - MARGIN) / len(bars)
    every = -(-len(bars) // 16)
    drawn = []
    for at, bar in enumerate(bars):
        left, below = MARGIN + at * step, float(HEIGHT)
        drawn.append(f"<g><title>{escape(bar.title)}</title>")
        for value, colour in bar.parts:
            tall = value / top * (HEIGHT - 10)
            below -= tall
            drawn.append(
                f'<rect x="{left:.1f}" y="{below:.1f}" width="{max(step * 0.85, 0.5):.1f}" height="{tall:.1f}" '
                f'fill="{colour}"/>'
            )
        drawn.append("</g>")
        if at % every == 0:
            drawn.append(f'<text x="{left:.1f}" y="{HEIGHT + 14}">{escape(bar.label)}</text>')
    axis = (
        f'<text x="0" y="18">{top:,.0f}</text><text x="0" y="{HEIGHT}">0</text>'
        f'<line x1="{MARGIN - 4}" y1="{HEIGHT}" x2="{WIDTH}" y2="{HEIGHT}" stroke="#93a1b1"/>'
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 20}" role="img" aria-label="{escape(unit)}">{axis}{"".join(drawn)}</svg>'
    )
