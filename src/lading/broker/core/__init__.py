"""What serves every protocol: topics, appends, reads, states, retention."""
