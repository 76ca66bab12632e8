"""The pipeline: a topic judged by its contract, routed by filters, written to tables, each message exactly once."""
