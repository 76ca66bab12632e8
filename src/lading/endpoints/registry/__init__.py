"""The schema registry over HTTP, as clients of Confluent's know it."""
