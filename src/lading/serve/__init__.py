"""``lading serve``: the broker as a process, with its duties, its signals and its service manager."""
