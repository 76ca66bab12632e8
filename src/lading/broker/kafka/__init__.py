"""What only Kafka asks for: coordinated groups, idempotent and transactional producers."""
