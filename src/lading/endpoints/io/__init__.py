"""What endpoints that speak binary TCP share: who is let in, and for how long."""
