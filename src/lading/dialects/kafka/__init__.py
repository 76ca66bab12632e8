"""Kafka: record batches of format 2, and the conversation around them (kafka.md)."""
