"""Directories and object stores as places of tables."""
