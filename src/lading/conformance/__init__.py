"""Whether a server returns headers as they were sent: named checks, and random lists of headers."""
