"""The command line: one module per noun; ``output`` prints results."""
