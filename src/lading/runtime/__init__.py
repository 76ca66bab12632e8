"""Services that every process of Lading uses: clock, turns, metrics, log lines, health and owned files."""
