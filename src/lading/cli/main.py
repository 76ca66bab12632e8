"""The ``lading`` command: runs what the command line names, and prints every expected error as one message."""

from __future__ import annotations

import errno
import gc
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Final

from ..model.errors import LadingError, UnseenHeaderWarning
from ..model.printable import escape_unseen, escape_unseen_in_lines
from ..serve.lean_imports import install_lean_imports
from .app import COMMANDS, build_app
from .output import discard_output, prepare_streams

START_OBJECTS: Final = 100_000
"""A search for garbage starts after this many new objects.

Objects made by imports stay, and with Python's default of 700 a start takes a tenth longer.
"""
COMPLETION: Final = "_LADING_COMPLETE"
"""Variable set by shells that request completions of the command line."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. Exit codes: 0 success, 1 a check failed, 2 an error, 130 interrupted."""
    if arguments is None:
        # the process is ours from its start; a broker sets its own thresholds once it is ready
        gc.set_threshold(START_OBJECTS)
        prepare_streams()
    # commands have their own sentences about headers that no message has
    warnings.simplefilter("ignore", UnseenHeaderWarning)
    words = sys.argv[1:] if arguments is None else list(arguments)
    named = None
    if words and COMPLETION not in os.environ:
        named = next((row for row in COMMANDS if row.name == words[0]), None)
    if arguments is None and named is not None and named.is_lean:
        install_lean_imports()
    try:
        build_app(None if named is None else named.name)(args=words, prog_name="lading", standalone_mode=True)
    except SystemExit as ended:
        # rich and click exit with 1 when the reader of the output has closed it, as if a check had failed
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        discard_output()
        sys.exit(0)
    except LadingError as error:
        sys.stderr.write(escape_unseen_in_lines(f"lading: {error}\n"))
        sys.exit(2)
    except OSError as error:
        if error.filename is None and error.errno not in (errno.ENOSPC, errno.EBADF):
            raise
        # an error with a path that the user named and no command checked, or with our output: a full disk, or a closed
        # pipe
        place = "standard output" if error.filename is None else os.fsdecode(error.filename)
        sys.stderr.write(f"lading: {escape_unseen(place)}: {error.strerror}\n")
        if error.filename is None:
            discard_output()
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
