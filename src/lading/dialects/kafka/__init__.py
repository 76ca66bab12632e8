"""Kafka: record batches of format 2, and the requests and responses around them (kafka.md)."""
