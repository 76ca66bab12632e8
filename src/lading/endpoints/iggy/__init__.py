"""Iggy classic over TCP and HTTP."""
