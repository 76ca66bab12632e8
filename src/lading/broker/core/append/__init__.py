"""The one way into the log, and the sequence numbers by which repeated batches are recognised."""
