"""What the broker does on its own: retention, deletion of records, damage that it finds."""
