"""The report of a pipeline as one HTML page without external resources: counts, rates, delays, reasons."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Final

from ..tables.commit.state import PipelineStateDirectory
from ..tables.formats.manifest import TABLE, Manifest
from .ledger import Ledger
from .plots import STYLE, Bar, bars, columns, duration, table
from .range_writer import TASK_US
from .reasons import expectation_of, reason_of

OUTCOMES: Final = ("good", "routed", "quarantined")
BATCHES_SHOWN = 200


def report(state: PipelineStateDirectory, pipeline: str, first: int = 1) -> str:
    """Return the page for all manifests starting at number ``first``; it also covers the case of none.

    A page for all manifests includes how many messages were redriven from quarantine.
    """
    manifests = [state.manifests.read(number) for number in state.manifests.numbers() if number >= first]
    return page(pipeline, manifests, state.directory, len(Ledger(state).list_sent()) if first == 1 else 0)


def page(pipeline: str, manifests: Sequence[Manifest], directory: Path, redriven: int = 0) -> str:
    """Return the page for these manifests; their tables are named relative to ``directory``.

    ``redriven`` messages of the quarantine were sent again, so that they are read, and counted, once more.
    """
    counts: Counter[str] = Counter()
    for manifest in manifests:
        counts.update(manifest.counts)
    body = [
        f"<h1>{escape(pipeline)}</h1>",
        f'<p class="sub">{escape(_write_span(manifests))}</p>',
        _write_cards(counts, redriven),
    ]
    if manifests:
        body += ["<h2>Messages by batch</h2>", _write_legend(), columns(_batch_bars(manifests), "messages by batch")]
        body += _write_rates(manifests)
        body += _write_delays(counts)
        body += ["<h2>Destinations and tables</h2>", _destinations_table(counts), _tables_table(manifests, directory)]
    body += _write_expectations(counts)
    body += ["<h2>Why messages failed</h2>", _reasons_table(counts)]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(pipeline)}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="color-scheme" '
        f'content="light dark"><style>{STYLE}</style></head>\n<body>\n' + "\n".join(body) + "\n</body></html>\n"
    )


def _write_span(manifests: Sequence[Manifest]) -> str:
    if not manifests:
        return "nothing has been published yet"
    first, last = _to_datetime(manifests[0].written_us), _to_datetime(manifests[-1].written_us)
    number = f"batch {manifests[0].number}"
    if len(manifests) > 1:
        number = f"batches {manifests[0].number} to {manifests[-1].number}"
    until = f" to {last:%H:%M:%S}" if last.date() == first.date() else f" to {last:%Y-%m-%d %H:%M:%S}"
    return f"{number}, published {first:%Y-%m-%d %H:%M:%S}{until if last != first else ''} UTC"


def _to_datetime(at_us: int) -> datetime:
    return datetime.fromtimestamp(at_us // 1_000_000, UTC)


def _write_cards(counts: Counter[str], redriven: int) -> str:
    read = counts["read"]
    stepped = "passed" in counts
    parts = ("passed", "quarantined") if stepped else OUTCOMES
    whole = sum(counts[name] for name in parts)
    cards = [("read", read, "&nbsp;")]
    cards += [(name, counts[name], f"{100 * counts[name] / read:.1f} %" if read else "&nbsp;") for name in OUTCOMES]
    if redriven:
        cards += [("sent again", redriven, "&nbsp;"), ("in quarantine", counts["quarantined"] - redriven, "&nbsp;")]
    shown = "".join(f'<div class="card">{name}<b>{count:,}</b>{share}</div>' for name, count, share in cards)
    check = f"the counts differ by {read - whole:,}"
    if whole == read:
        sum_ = " + ".join(f"{counts[name]:,}" for name in parts)
        check = f"{' + '.join(parts)} = read: {sum_} = {read:,}"
    check += "; good and routed are rows that the SQL steps made" if stepped else ""
    if redriven:
        left = [f"{counts[name]:,} {name}" for name in parts[:-1]]
        left.append(f"{counts['quarantined'] - redriven:,} in quarantine")
        check += (
            f". {redriven:,} of the quarantined were sent again, to be read and counted once more; without them "
            f"{' + '.join(left)} = {whole - redriven:,}"
        )
    return f'<div class="cards">{shown}</div><p class="sub">{check}</p>'


def _write_legend() -> str:
    keys = "".join(f'<span class="legend"><span class="key {name}"></span>{name}</span>' for name in OUTCOMES)
    return f'<p class="sub">{keys}</p>'


def _batch_bars(manifests: Sequence[Manifest]) -> list[Bar]:
    return [
        Bar(
            str(manifest.number),
            tuple((manifest.counts.get(name, 0), name) for name in OUTCOMES),
            f"batch {manifest.number}: " + ", ".join(f"{manifest.counts.get(name, 0):,} {name}" for name in OUTCOMES),
        )
        for manifest in _that_read(manifests)[-BATCHES_SHOWN:]
    ]


def _that_read(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Return the manifests of batches, without those that only moved messages to quarantine later."""
    return [manifest for manifest in manifests if "read" in manifest.counts]


def _write_rates(manifests: Sequence[Manifest]) -> list[str]:
    """Return lines with the throughput of tasks, and that of the batches of a run, one after the other."""
    work = [
        _rate_bar(manifest, manifest.counts[TASK_US] / 1e6)
        for manifest in manifests[-BATCHES_SHOWN:]
        if manifest.counts.get(TASK_US)
    ]
    follow = [
        _rate_bar(manifest, (manifest.written_us - before.written_us) / 1e6)
        for before, manifest in pairwise(_that_read(manifests))
        if before.run == manifest.run and manifest.written_us > before.written_us
    ][-BATCHES_SHOWN:]
    made = []
    if work:
        made += ["<h2>Rate of a task</h2>", '<p class="sub">messages a second while it reads, judges and writes</p>']
        made.append(columns(work, "messages a second of a task, by batch"))
    if follow:
        made += ["<h2>Rate from batch to batch</h2>", '<p class="sub">messages a second since the batch before</p>']
        made.append(columns(follow, "messages a second since the batch before"))
    return made


def _rate_bar(manifest: Manifest, seconds: float) -> Bar:
    rate = manifest.counts.get("read", 0) / seconds
    title = f"batch {manifest.number}: {manifest.counts.get('read', 0):,} in {seconds:,.2f} s, {rate:,.0f} a second"
    return Bar(str(manifest.number), ((rate, "routed"),), title)


def _write_delays(counts: Counter[str]) -> list[str]:
    """Return lines with the delays, which tasks count by powers of two of milliseconds."""
    powers = {int(name.partition(".")[2]): count for name, count in counts.items() if name.startswith("delay.")}
    if not powers:
        return []
    shown = [
        Bar(
            duration(2**power),
            ((powers.get(power, 0), "good"),),
            f"{duration(2**power)} to {duration(2 ** (power + 1))}: {powers.get(power, 0):,}",
        )
        for power in range(min(powers), max(powers) + 1)
    ]
    half, most = (duration(2 ** (_find_quantile(powers, share) + 1)) for share in (0.5, 0.99))
    return [
        "<h2>Delay from event to table</h2>",
        f'<p class="sub">half of the messages within {half}, 99 % within {most}; '
        "a column begins at its label and ends at twice as much</p>",
        columns(shown, "messages by their delay"),
    ]


def _find_quantile(powers: dict[int, int], share: float) -> int:
    """Return the power of two that bounds the delays of ``share`` of the messages."""
    whole, seen = sum(powers.values()), 0
    for power in sorted(powers):
        seen += powers[power]
        if seen >= share * whole:
            return power
    return max(powers)


def _destinations_table(counts: Counter[str]) -> str:
    named = [(name.removeprefix("to."), count) for name, count in sorted(counts.items()) if name.startswith("to.")]
    return table(("destination", "messages"), [(name, f"{count:,}") for name, count in named])


def _tables_table(manifests: Iterable[Manifest], directory: Path) -> str:
    rows: Counter[str] = Counter()
    files: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for manifest in manifests:
        for file in manifest.files:
            if file.kind == TABLE:
                rows[file.table] += file.rows
                files[file.table] += 1
                sizes[file.table] += file.size_bytes
    named = sorted((os.path.normpath(directory / name), name) for name in rows)
    shown = [(path, f"{rows[name]:,}", f"{files[name]:,}", f"{sizes[name]:,}") for path, name in named]
    return table(("table", "rows", "files", "bytes"), shown)


def _write_expectations(counts: Counter[str]) -> list[str]:
    found = [(name, count) for counter, count in counts.items() if (name := expectation_of(counter)) is not None]
    if not found:
        return []
    read = counts["read"]
    shown = [(name, f"{count:,}", f"{100 * count / read:.2f} %" if read else "") for name, count in sorted(found)]
    return [
        "<h2>Expectations</h2>",
        '<p class="sub">messages that passed the contract, and for which an expectation did not hold</p>',
        table(("expectation", "messages", "of those read"), shown),
    ]


def _reasons_table(counts: Counter[str]) -> str:
    found = [(reason, count) for name, count in counts.items() if (reason := reason_of(name)) is not None]
    if not found:
        return "<p>Nothing failed.</p>"
    ordered = sorted(found, key=lambda one: (-one[1], one[0]))
    return bars("reason", "messages", [(f"{word} {header}".strip(), count) for (word, header), count in ordered])
