"""What only Iggy asks for: polls and its groups."""
