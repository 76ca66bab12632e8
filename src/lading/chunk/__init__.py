"""The chunk's envelope and the overlay's record, as bytes (docs/reference/chunk-format.md). Pure, no files."""
