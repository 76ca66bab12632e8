"""The part that a run reads: offsets, ranges and the end of each batch."""
