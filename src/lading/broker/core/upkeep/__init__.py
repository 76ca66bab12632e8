"""The broker's work without a request: retention, deletion of records, damage that it finds."""
