"""The command line: one file per noun; ``output`` renders, commands decide."""
