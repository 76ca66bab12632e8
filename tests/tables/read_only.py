"""One user's topic into a table of which something is read-only, again and again: what is told, as a JSON list.

    python -m tests.tables.read_only URL TOPIC FORM TABLE DIRECTORY…

Each directory, relative to the table, is made read-only for one try. Root may write there: it gives up that right
first, before any library has started threads.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

VERSION_3, DAC_OVERRIDE = 0x20080522, 0b110
"""Of Linux's capabilities: the version of their sets, and those by which permissions do not count (capabilities(7))."""


def give_up_rights() -> None:
    """Let permissions of files count for root, too."""
    if os.geteuid():
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(VERSION_3, 0)
    # effective, permitted and inheritable, of the capabilities below 32, then of those above
    sets = (ctypes.c_uint32 * 6)()
    libc.capget(header, sets)
    for at in range(3):
        sets[at] &= ~DAC_OVERRIDE
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")


def main(url: str, topic: str, form: str, table: str, *directories: str) -> None:
    """Try to write with each of these directories read-only."""
    give_up_rights()
    from lading.tables.ingest import IngestSettings, ingest

    from .direct import DirectExecutor
    from .logged_forms import COLUMNS

    told = []
    for name in directories:
        directory = Path(table) / name
        mode = directory.stat().st_mode
        directory.chmod(0o555)
        try:
            ingest(DirectExecutor(), url, topic, f"{form}:{table}", IngestSettings(columns=COLUMNS))
        except Exception as error:
            told.append(f"{type(error).__name__}: {error}")
        else:
            told.append("")
        finally:
            directory.chmod(mode)
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
