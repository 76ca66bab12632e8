"""Iggy classic over TCP."""
