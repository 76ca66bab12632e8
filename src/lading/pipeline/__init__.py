"""The pipeline: topics validated by a contract, routed by filters, written to tables, each message exactly once."""
