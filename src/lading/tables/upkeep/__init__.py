"""Upkeep of tables: files that replace others in one commit, whatever the form of the table is."""
