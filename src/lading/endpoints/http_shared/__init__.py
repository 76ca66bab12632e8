"""Parts that HTTP endpoints share: server, routing, documents."""
