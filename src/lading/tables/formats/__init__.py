"""Forms of tables: how files that tasks have staged become visible, once."""
