"""Test suites of other projects, unchanged, against Lading and against the real server."""
