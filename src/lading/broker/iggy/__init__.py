"""Parts that serve Iggy alone: polls and its groups."""
