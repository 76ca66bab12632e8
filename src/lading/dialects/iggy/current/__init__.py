"""Iggy's current generation: 256-byte headers, batches of 48-byte frames, XXH3-64 (iggy-current.md B)."""
