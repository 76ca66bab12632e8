"""Iggy's bytes: one room for each framing, one for messages and one for its HTTP documents."""
