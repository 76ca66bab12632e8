"""Backups of a data directory: taken while its broker runs or after it, kept in a directory or an object store."""
