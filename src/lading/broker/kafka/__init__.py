"""Parts that serve Kafka alone: coordinated groups, idempotent and transactional producers."""
