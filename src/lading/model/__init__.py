"""The message: headers, kinds, state, batch, names, limits and errors. No I/O, no protocol."""
