"""The parts that serve every protocol: topics, appends, reads, states, retention."""
