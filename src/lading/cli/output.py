"""Output of results and progress: text for people, JSON for programs, colours only on a terminal."""

from __future__ import annotations

import codecs
import json
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, Final

from ..model.printable import escape_unseen, escape_unseen_in_json, escape_unseen_in_lines

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID
    from rich.text import Text


ESCAPES = "lading.escapes"
"""The error handler of our own streams, for characters that their encoding cannot represent."""


CELL_CHARACTERS_MAX: Final = 300


class Output(StrEnum):
    """``text`` for people, ``json`` for programs (one JSON object a line)."""

    TEXT = "text"
    JSON = "json"


STYLES = ("bold", "dim", "green", "yellow", "red")
"""Styles that notes may use: ``[bold]text[/]``; any other bracket is text."""


def print_note(text: str) -> None:
    """Print one line for people to stderr, so that stdout is data only.

    Names and values that users chose need no escaping: brackets in them are printed unchanged, and control characters
    are escaped.
    """
    from rich.console import Console

    Console(stderr=True, highlight=False, soft_wrap=True).print(apply_styles(escape_unseen_in_lines(text)))


def apply_styles(text: str) -> Text:
    """Return ``text`` with our own styles applied."""
    from rich.text import Text

    made, style = Text(), ""
    for part in re.split(rf"(\[(?:{'|'.join(STYLES)})\]|\[/\])", text):
        if part.startswith("[") and part[1:-1] in STYLES:
            style = part[1:-1]
        elif part == "[/]" and style:
            style = ""
        else:
            made.append(part, style)
    return made


def json_line(value: Any) -> None:
    """Print one JSON document as one line to stdout, flushed so that pipes get it at once."""
    sys.stdout.write(_encode_json(value) + "\n")
    sys.stdout.flush()


def print_document(value: Any) -> None:
    """Print a JSON document that is to become a file, indented, to stdout."""
    sys.stdout.write(_encode_json(value, indent=2) + "\n")


def _encode_json(value: Any, indent: int | None = None) -> str:
    """Return a JSON document; NaN and infinities, which JSON cannot express, become the texts ``nan``, ``inf`` and
    ``-inf``.
    """
    options: dict[str, Any] = {"ensure_ascii": False, "indent": indent, "default": str, "allow_nan": False}
    try:
        document = json.dumps(value, **options)
    except ValueError:
        document = json.dumps(_replace_non_finite(value), **options)
    return escape_unseen_in_json(document)


def _replace_non_finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else str(value)
        case Mapping():
            return {key: _replace_non_finite(held) for key, held in value.items()}
        case list() | tuple():
            return [_replace_non_finite(held) for held in value]
    return value


def print_table(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, output: Output, title: str = "", empty: str = "",
    exact: bool = False,
) -> None:  # fmt: skip
    """Print ``rows`` as a table whose ``columns`` map keys to headings, or as a line of JSON each, with every key.

    Without rows, people get the sentence ``empty`` instead of a table of headings, if there is one. With ``exact``
    fractions are not rounded.
    """
    if output is Output.JSON:
        for row in rows:
            json_line(row)
        return
    if not rows and empty:
        print_note(empty)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    drawn = Table(
        box=box.SIMPLE_HEAD,
        title=literal(title) if title else None,
        title_justify="left",
        title_style="bold",
        pad_edge=False,
    )
    for key, label in columns.items():
        numeric = bool(rows) and all(isinstance(row.get(key), int | float | None) for row in rows)
        drawn.add_column(literal(label), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(cell(row.get(key), exact=exact) for key in columns))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 160
    console.print(drawn)


def print_first_rows(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], limit: int, *, output: Output, remedy: str,
    exact: bool = False,
) -> None:  # fmt: skip
    """Print the first ``limit`` of ``rows`` as a table, and if there are more, how to get them."""
    print_table(rows[:limit], columns, output=output, exact=exact)
    if len(rows) > limit and output is Output.TEXT:
        print_note(f"the first {limit:,} rows; {remedy}")


def cell(value: Any, *, exact: bool = False) -> str:
    """Format a value for a table: thousands separated, null as a dash, markup taken literally.

    Fractions are rounded and long texts cut: one header of 30,000 characters made a table of 1,300 lines. With
    ``exact`` all digits and characters are shown.
    """
    match value:
        case None:
            return "[dim]-[/]"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float() if exact:
            return repr(value)
        case float():
            # ratios below ten need their digits, rates do not
            return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"
    text = str(value)
    if len(text) > CELL_CHARACTERS_MAX and not exact:
        text = f"{text[:CELL_CHARACTERS_MAX]}… ({len(text):,} characters)"
    return literal(text)


def literal(text: str) -> str:
    """Escape text that users chose for Rich: no markup, and no control characters."""
    from rich.markup import escape

    return escape(escape_unseen(text))


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 message``, ``2 batches``."""
    ending = "" if number == 1 else "es" if noun.endswith("ch") else "s"
    return f"{number:,} {noun}{ending}"


def format_rate(per_s: float, noun: str) -> str:
    """Return a whole number of things a second with their noun: ``1 message/s``."""
    return f"{format_count(round(per_s), noun)}/s"


def format_date(date_us: int) -> str:
    """Return a date in UTC, to the second."""
    from ..model.message import format_time

    return f"{format_time(date_us, 'seconds')}Z"


def format_size(size_bytes: float) -> str:
    """Format a number of bytes for people: ``1.5 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} TB"


class Meter:
    """Progress of long work: drawn on a terminal, silent elsewhere."""

    def __init__(self, progress: Progress | None, task: TaskID | None) -> None:
        self._progress = progress
        self._task = task

    def advance(self, count: int) -> None:
        """Add ``count`` to the completed amount."""
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task, count)

    def reach(self, done: int, total: int | None = None) -> None:
        """Set the completed amount, and ``total`` if given."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, total=total)

    def label(self, text: str) -> None:
        """Set the text before the bar."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=escape_unseen(text))


@contextmanager
def meter(label: str, total: int | None, unit: str = "messages") -> Iterator[Meter]:
    """Show a progress bar on stderr with rate and time left, or nothing if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield Meter(None, None)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed or 0:,.0f} {unit}/s", style="dim")

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield Meter(progress, progress.add_task(escape_unseen(label), total=total))


def prepare_streams() -> None:
    """Make standard output and error take all text, and fail like other programs if they are closed.

    A letter that their encoding has not (``PYTHONIOENCODING=ascii``) is written as ``\\u00e0``, which is the same in
    JSON. With standard output closed (``>&-``) Python has none; the first line written is an error then.
    """
    codecs.register_error(ESCAPES, _escape_for_json)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # a descriptor that cannot be written: it also prevents later files from becoming the output
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8"))
        elif isinstance(stream, TextIOWrapper) and stream.encoding.lower().replace("-", "") != "utf8":
            stream.reconfigure(errors=ESCAPES)


def _escape_for_json(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    # utf-16 splits characters above U+FFFF into two halves, as JSON does
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2)), error.end


def discard_output() -> None:
    """Discard what is still buffered for stdout, so that Python does not try to write it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def line(text: str) -> None:
    """Print a line of text to stdout."""
    sys.stdout.write(escape_unseen(text) + "\n")


def print_lines(text: str) -> None:
    """Print text of several lines to stdout, such as an error with the position in a condition below it."""
    sys.stdout.write(escape_unseen_in_lines(text) + "\n")
