"""One range of a topic as batches of rows."""
