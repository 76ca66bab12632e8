"""``python -m lading``: the command line, if the directory of scripts is not on the path."""

from .cli.main import main

main()
