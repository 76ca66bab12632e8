"""What every process of Lading uses while it runs: clock, turns, metrics, log lines, health and files it owns."""
