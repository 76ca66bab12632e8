"""``lading spool``: a queue into a directory that pipelines, Spark and Python read like any other."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from .options import local_path
from .output import print_note


def spool(
    from_: Annotated[str, typer.Argument(metavar="FROM", help="The queue, e.g. nsq://127.0.0.1:4161.")],
    topic: Annotated[str, typer.Argument(help="Its topic.")],
    directory: Annotated[
        Path, typer.Argument(parser=local_path, metavar="DIRECTORY", help="The spool: made where it is missing.")
    ],
    channel: Annotated[str, typer.Option(help="The channel that messages are taken for.")] = "spool",
    keep: Annotated[
        str | None, typer.Option(help="Delete what is older, read or not, e.g. 7d; all is kept unless given.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when what waits now has been taken.")] = False,
) -> None:
    """Take messages from a queue into a spool, until Ctrl-C.

    Each is on disk before the queue is told that it is done. The spool is a data directory with one topic: name it
    as the source of a pipeline, or read it from Python and Spark, also while it is filled.

    Example:

        lading spool nsq://127.0.0.1:4161 flights ./spool --channel tables
    """
    from ..spool.filler import fill_spool
    from ..spool.spool_log import KEEP_S, lock_spool
    from .units import duration_us

    keep_s = KEEP_S if keep is None else duration_us(keep) / 1e6

    ended: list[bool] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.append(True))

    def caught_up(end: int) -> None:
        print_note(
            f"what waited is in [bold]{directory}[/]: {end:,} messages" + ("" if once else "; going on until Ctrl-C")
        )
        if once:
            ended.append(True)

    with lock_spool(directory):
        count = fill_spool(
            from_,
            topic,
            channel,
            directory,
            is_stopped=lambda: bool(ended),
            caught_up=caught_up,
            done=lambda: 0 if keep is None else None,
            keep_s=keep_s,
        )
    print_note(f"{count:,} messages taken")
