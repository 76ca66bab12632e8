"""A store whose topics are in an Apache Kafka cluster, served by gateways (docs/how-to/beyond-one-machine.md)."""
