"""The durable log: segments of chunks, their index, the state overlay, recovery and group commit (design.md Log)."""
