"""Kafka clusters, Lading's Kafka endpoint among them."""
