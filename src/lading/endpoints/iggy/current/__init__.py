"""The current generation of Iggy over a connection: 256-byte headers, logins, batches (iggy-current.md B)."""
