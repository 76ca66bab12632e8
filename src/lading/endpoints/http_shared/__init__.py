"""What HTTP endpoints share: server, routing, documents."""
