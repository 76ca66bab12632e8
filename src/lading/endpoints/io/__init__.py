"""Connections of endpoints that speak binary protocols: transports, admission and deadlines."""
