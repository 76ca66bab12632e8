"""The one way into the log, with the numbers of producers that send again."""
