"""``lading spool``: a queue copied into a data directory for pipelines, Spark and Python."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from .options import SourceOption, local_path, split_source
from .output import format_count, print_note


def spool(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[SRC] TOPIC DIRECTORY",
            help="The queue, e.g. nsq://127.0.0.1:4161, its topic, and the spool directory, which is created if "
            "missing. The queue may be --from instead.",
        ),
    ],
    from_: SourceOption = None,
    channel: Annotated[str, typer.Option(help="NSQ channel to consume.")] = "spool",
    keep: Annotated[
        str | None, typer.Option(help="Delete messages older than this, e.g. 7d, even if unread. Default: keep all.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Stop once the messages waiting now are consumed.")] = False,
) -> None:
    """Consume an NSQ channel into a spool directory until Ctrl-C.

    Messages are acknowledged only after they are on disk. A spool is a data directory with one topic; use it as a
    pipeline source or read it from Python or Spark, even while it is being filled.

    Examples:

        lading spool nsq://127.0.0.1:4161 flights ./spool --channel tables

        lading spool flights ./spool --from nsq://127.0.0.1:4161
    """
    from ..client.units import duration_us
    from ..spool.filler import fill_spool
    from ..spool.spool_log import KEEP_S, lock_spool

    source, topic, place = split_source(words, from_, ("TOPIC", "DIRECTORY"))
    directory = local_path(place)
    keep_s = KEEP_S if keep is None else duration_us(keep) / 1e6

    ended: list[bool] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.append(True))

    def caught_up(end: int) -> None:
        print_note(
            f"what waited is in [bold]{directory}[/]: {format_count(end, 'message')}"
            + ("" if once else "; continuing until Ctrl-C")
        )
        if once:
            ended.append(True)

    with lock_spool(directory):
        count = fill_spool(
            source,
            topic,
            channel,
            directory,
            is_stopped=lambda: bool(ended),
            caught_up=caught_up,
            done=lambda: 0 if keep is None else None,
            keep_s=keep_s,
        )
    print_note(f"{format_count(count, 'message')} consumed")
