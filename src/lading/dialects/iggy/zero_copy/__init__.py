"""Iggy's zero-copy messages: a fixed header, payload, then headers; crates 0.7 to 0.10."""
