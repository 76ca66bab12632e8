"""``python -m lading.ingest URL TOPIC CHANNEL SPOOL [OPTIONS]``: fill a spool until standard input ends or SIGTERM.

OPTIONS is a JSON object for the transport. One line of JSON on standard output says that what waited has been taken
(``{"event": "caught_up", "end": …}``), that another process fills the spool (``taken``), or what went wrong.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any

from ..model.errors import LadingError
from .queue import ingest
from .spool import SpoolTaken, owned


def main(arguments: list[str]) -> int:
    """Run until told to stop; 0 unless something went wrong."""
    url, topic, channel, directory = arguments[:4]
    options: dict[str, Any] = json.loads(arguments[4]) if len(arguments) > 4 else {}
    ended: list[bool] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.append(True))

    def stopped() -> bool:
        # whoever started this holds the other end: when it ends, so does this
        readable = select.select([sys.stdin], [], [], 0)[0]
        return bool(ended) or (bool(readable) and not os.read(sys.stdin.fileno(), 1))

    try:
        with owned(Path(directory)):
            ingest(
                url,
                topic,
                channel,
                Path(directory),
                stopped=stopped,
                caught_up=lambda end: _say(event="caught_up", end=end),
                **options,
            )
    except SpoolTaken as taken:
        _say(event="taken", message=str(taken))
    except LadingError as error:
        _say(event="failed", message=str(error))
        return 1
    return 0


def _say(**document: Any) -> None:
    print(json.dumps(document), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
