"""The command line: one module per noun; ``output`` prints what they decide."""
