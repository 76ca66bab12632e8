"""Work of the broker without a request: retention, deletion of records, reports of damage."""
