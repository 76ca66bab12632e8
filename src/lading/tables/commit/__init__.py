"""Staged files, manifests and the commit that shows them, and what a crash leaves of it."""
