"""Lading's own protocol: blocks over HTTP."""
