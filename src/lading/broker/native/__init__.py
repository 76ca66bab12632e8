"""Lading's own protocol: appends, groups, transactions."""
